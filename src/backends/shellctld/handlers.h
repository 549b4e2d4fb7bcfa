/* The routes of shellctl's API: decode, work, encode. `exchange.app` is a struct launcher. */
#pragma once

#include "http/router.h"

/** All of them, for http_server_new. */
extern const struct route_set shellctl_routes;
