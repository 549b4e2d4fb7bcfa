/* What the HTTP side may ask of the collector and the reconciler, which live beside it. */
#pragma once

struct json_writer;

struct gc_control {
    void (*sweep)(void *ctx);
    /** Members of one JSON object: how the collector and the reconciler are doing. */
    void (*describe)(void *ctx, struct json_writer *w);
    void *ctx;
};
