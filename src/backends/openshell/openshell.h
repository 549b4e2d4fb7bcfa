/* Backend over an OpenShell gateway: each binding is a sandbox of its own, driven over gRPC; its
 * shellctl is reached through ForwardTcp streams that never leave this process (protocols "runtime
 * backends" section 3, "OpenShell gateway").
 *
 * binding_ref = workspace_ref = the sandbox's name, a function of the binding id alone. */
#pragma once

#include "core/domain/backend.h"

/** Settings of the driver; texts are copied. */
struct openshell_options {
    const char *endpoint;  /* host:port */
    const char *workspace; /* OpenShell workspace; "" means `default` */
    const char *bearer_token;
    const char *tls_ca_path, *tls_cert_path, *tls_key_path;
    bool insecure;
    const char *image;
    const char *driver_config;     /* JSON object, not empty */
    const char *shared_mount_path; /* absolute */
    const char *egress_allow;      /* comma-separated host:port */
    const char *shellctl_token;
    int shellctl_port;
    int64_t ready_timeout_ms;
    int exec_timeout_s;
    int64_t validation_timeout_ms; /* of acquire's probe once the sandbox is up */
    int64_t idle_stop_ms;          /* 0 = never */
    const char *instance_id;       /* environment label */
};

/** The backend, or NULL with `err`. `http` is borrowed for its life. */
struct backend *openshell_backend_new(struct loop *loop, struct http_client *http,
                                      const struct openshell_options *options, struct error *err);
