/* A fake of tests/fakes as a child process: started once in a test program, ended with it. It is
 * driven over blocking sockets: these are a test's own preparations, not the code under test. */
#pragma once

#include <stddef.h>

/** `port` serves the protocol, `control_port` the control routes (the same where there is one). */
struct fake_process {
    int port, control_port;
};

/** `python -m module args…`; `args` ends with NULL. Waits for its word that it listens. */
void fake_process_start(struct fake_process *fake, const char *python, const char *module,
                        const char *const *args);

/** One request to a control route; the answer's body goes to `ret` (may be NULL), cut at `cap`.
 * Fails the test when it does not succeed. */
void fake_process_request(const struct fake_process *fake, const char *method, const char *path,
                          const char *body, char *ret, size_t cap);
