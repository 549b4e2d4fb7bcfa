#include "backends/enterprise/backend.h"

#include <string.h>
#include <strings.h>

bool enterprise_says_gone(int status, const char *code)
{
    static const char *const gone[] = {"not_found", "sandbox_expired", "sandbox_not_found"};
    static const char *const other[] = {"", "job_not_found", "invalid_json", "request_failed"};

    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++) {
        if (strcasecmp(code, gone[i]) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
        if (strcmp(code, other[i]) == 0)
            return false;
    }
    return status == 404;
}
