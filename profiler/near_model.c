/* SPDX-License-Identifier: Apache-2.0 */
/* The closed forms of `gyre bench near`; see near_model.h. */
#include "config.h"

#include "near_model.h"

#include <math.h>

/* Gradients and update, as a share of the step of `host` at 6 devices. */
static const double SHARE = 0.756;
enum { SHARE_DEVICES = 6 };

/* Seconds per parameter times bytes per second are bytes: all terms are bytes
 * over rates, times the number of parameters at the end. */
near_seconds near_model_seconds(const near_setup *setup, near_scheme scheme,
                                unsigned devices)
{
    double reads = setup->read * devices, writes = setup->write * devices;
    double down = fmin(setup->link, writes);
    double g = scheme == NEAR_COMPRESSION ? setup->payload : setup->gradient;
    double s = setup->state;
    double read = (s + g) / reads, write = s / writes;
    double link = setup->returned / setup->link;
    near_seconds t = {.gradient = g / down};

    if (scheme == NEAR_HOST)
        link = (s + g + s) / setup->link;
    t.update = scheme == NEAR_UPDATE ? fmax(link, read + write)
                                     : fmax(link, fmax(read, write));
    if (scheme == NEAR_COMPRESSION)
        t.update += setup->residual / down;
    t.gradient *= setup->elements;
    t.update *= setup->elements;
    return t;
}

near_bytes near_model_bytes(const near_setup *setup, near_scheme scheme)
{
    double g = scheme == NEAR_COMPRESSION ? setup->payload : setup->gradient;
    double s = setup->state;
    near_bytes bytes = {.device_read = s + g, .device_write = s + g};

    bytes.host = scheme == NEAR_HOST ? g + (s + g) + s : g + setup->returned;
    return bytes;
}

double near_model_forward(const near_setup *setup)
{
    near_seconds t = near_model_seconds(setup, NEAR_HOST, SHARE_DEVICES);

    return (t.gradient + t.update) * (1 / SHARE - 1);
}

/* Elements on the fullest device. */
static double fullest(double elements, unsigned devices, double chunk)
{
    double chunks = ceil(elements / chunk);

    return fmin(ceil(chunks / devices) * chunk, elements);
}

double near_model_chunk(double elements, unsigned devices, double grain,
                        double wanted)
{
    double best = grain, least = INFINITY;
    double middle = fmax(floor(wanted / grain), 1);
    double first = fmax(ceil(middle * 0.75), 1), last = ceil(middle * 1.25);

    for (double k = first; k <= last; k++) {
        double load = fullest(elements, devices, k * grain);
        double off = fabs(k - middle), best_off = fabs(best / grain - middle);

        if (load < least || (load == least && off < best_off)) {
            least = load;
            best = k * grain;
        }
    }
    return best;
}
