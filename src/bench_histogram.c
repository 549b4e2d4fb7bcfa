#include "bench.h"

enum { STEPS_BITS = 6, STEPS = 1 << STEPS_BITS };

/* Below 64 a bin per microsecond; above, the top seven bits of the value choose the bin. */
static int bin_of(int64_t us)
{
    int shift = 0;

    if (us < STEPS)
        return us < 0 ? 0 : (int)us;
    shift = 63 - __builtin_clzll((unsigned long long)us) - STEPS_BITS;
    return (shift + 1) * STEPS + (int)((us >> shift) - STEPS);
}

/* The highest value that falls into the bin. */
static int64_t bin_top(int bin)
{
    int shift = bin / STEPS - 1;

    if (shift < 0)
        return bin;
    return ((int64_t)(STEPS + bin % STEPS + 1) << shift) - 1;
}

void bench_histogram_add(struct bench_histogram *histogram, int64_t us)
{
    int last = (int)(sizeof(histogram->bins) / sizeof(histogram->bins[0])) - 1;
    int bin = bin_of(us);

    histogram->bins[bin < last ? bin : last]++;
    histogram->count++;
    if (us > histogram->max_us)
        histogram->max_us = us;
}

int64_t bench_histogram_percentile_us(const struct bench_histogram *histogram, double percent)
{
    uint64_t wanted = (uint64_t)((double)histogram->count * percent / 100.0 + 0.5);
    uint64_t seen = 0;

    for (int bin = 0; bin < (int)(sizeof(histogram->bins) / sizeof(histogram->bins[0])); bin++) {
        seen += histogram->bins[bin];
        if (seen >= wanted && seen > 0)
            return bin_top(bin) < histogram->max_us ? bin_top(bin) : histogram->max_us;
    }
    return histogram->max_us;
}
