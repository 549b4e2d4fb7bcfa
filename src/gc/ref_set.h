/* A set of refs, each with a number (a time). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ref_set;

struct ref_set *ref_set_new(void);
void ref_set_free(struct ref_set *set); /* NULL is allowed */

/** Copies the ref; one that is there gets the new value. */
void ref_set_put(struct ref_set *set, const char *ref, int64_t value);
bool ref_set_get(const struct ref_set *set, const char *ref, int64_t *ret_value);
/** Forget those with a value below `limit`. */
void ref_set_forget_before(struct ref_set *set, int64_t limit);
