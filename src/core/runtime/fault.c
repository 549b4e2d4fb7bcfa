#include "core/runtime/fault.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    bool loaded;
    char point[96]; /* "" = none */
    long passages;  /* until death */
} fault;

static void fault_load(void)
{
    const char *setting = getenv("BINDERY_FAULT_POINT");
    const char *colon;

    fault.loaded = true;
    fault.passages = 1;
    if (setting == NULL)
        return;
    snprintf(fault.point, sizeof(fault.point), "%s", setting);
    colon = strchr(setting, ':');
    if (colon != NULL) {
        fault.passages = strtol(colon + 1, NULL, 10);
        fault.point[colon - setting < (long)sizeof(fault.point) ? colon - setting : 0] = '\0';
    }
}

void fault_point(const char *name, const char *when)
{
    size_t len;

    if (!fault.loaded)
        fault_load();
    if (fault.point[0] == '\0')
        return;
    len = strlen(name);
    if (strncmp(fault.point, name, len) != 0 || fault.point[len] != '.' ||
        strcmp(fault.point + len + 1, when) != 0)
        return;
    if (--fault.passages <= 0)
        raise(SIGKILL);
}
