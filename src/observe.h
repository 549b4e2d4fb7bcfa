/* The standing observers of the process: operations, turns of the loop and log lines, as metrics. */
#pragma once

struct loop;

void observe_loop(struct loop *loop);
