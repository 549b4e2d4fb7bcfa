/* The entry that libFuzzer and the replay call; each target defines it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/** Must return 0; abort (POST of check.h) when something that always holds does not. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);
