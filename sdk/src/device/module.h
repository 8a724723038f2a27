/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device module (kind "gyre.device/0") gives to Gyre.  Internal: host
 * and module are built from one tree, so there is no promise between versions.
 *
 * A module opens its driver libraries at run time and links to none of them,
 * nor to libgyre: what it needs of the host comes in the service table.  Its
 * plugin's descriptor is a gyre_driver.
 *
 * One device runs one program, the kernel `gyre_update`, on work that is laid
 * out by the host (device/pack.h):
 *
 *     lane:   state bytes --> | device: state | --> state bytes
 *             input bytes --> | device: input |
 *                                  kernel, one work-group per grain
 *
 * A lane is an in-order queue with buffers of its own.  At most one launch is
 * on a lane at a time; launches of different lanes overlap, so that one's
 * transfers hide behind another's kernel.
 *
 * Functions that take a device are called by one thread at a time per device,
 * the others by any.  Errors are written into gyre_error with the driver's own
 * number and name.
 */
#ifndef GYRE_SRC_DEVICE_MODULE_H
#define GYRE_SRC_DEVICE_MODULE_H

#include <gyre/plugin.h>
#include <gyre/status.h>

#define GYRE_KIND_DEVICE "gyre.device/0"

/* The host's services; valid as long as the context. */
typedef struct gyre_services {
    size_t size;
    void *user;
    /* level as gyre_log_level. */
    void (*log)(void *user, int level, const char *text);
    /* Zeroed; NULL when out of memory.  Given back with the same size. */
    void *(*take)(void *user, size_t bytes);
    void (*give)(void *user, void *block, size_t bytes);
} gyre_services;

typedef struct gyre_device_plan {
    size_t size;
    uint32_t index;      /* which device, as `describe` counts them */
    uint32_t lanes;      /* at least 1 */
    uint32_t group;      /* work-items of a work-group */
    int allow_inexact;   /* take a device whose division, root or denormals are
                            not those of IEEE 754 */
    const char *source;  /* in the driver's language */
    size_t shared_bytes; /* of a work-group */
    size_t state_bytes;  /* the most of a launch */
    size_t input_bytes;
} gyre_device_plan;

typedef struct gyre_launch {
    size_t size;
    void *state; /* read and written back; the caller leaves it alone until
                    `finish` */
    size_t state_bytes;
    size_t input_bytes; /* that lie in the lane's input memory */
    uint32_t grains;    /* work-groups */
} gyre_launch;

/*
 * Where gradients are born: memory and kernels beside somebody else's, in the
 * context that these belong to, with one in-order queue.  One thread at a time.
 * What is on the queue may fail later; `read` and `wait` tell.
 */
enum {
    GYRE_BIRTH_GRADIENTS, /* f32, sums of the micro-batches so far */
    GYRE_BIRTH_E0,        /* both versions of the residual; 0 bytes: none */
    GYRE_BIRTH_E1,
    GYRE_BIRTH_PAYLOADS, /* one behind the other, each as long as a whole one */
    GYRE_BIRTH_LEAVES,   /* f64: of the gradients, then of D(c) */
    GYRE_BIRTH_STAGING,  /* gradients on their way from the host */
    GYRE_BIRTH_BLOCKS
};

enum {
    GYRE_BIRTH_TAKE,
    GYRE_BIRTH_LEAF,
    GYRE_BIRTH_ENCODE,
    GYRE_BIRTH_KERNELS
};
enum { GYRE_BIRTH_MOST_WORDS = 12 };

typedef struct gyre_birth_plan {
    size_t size;
    const void *data; /* memory of the caller's, and its device, as in */
    int32_t device;   /* gyre_gradient: whose context is used */
    uint32_t group;
    size_t shared_bytes;
    const char *source;              /* source.h: gyre_source_birth */
    size_t bytes[GYRE_BIRTH_BLOCKS]; /* of each block */
} gyre_birth_plan;

typedef struct gyre_birth_launch {
    size_t size;
    uint32_t kernel;
    uint32_t groups;
    uint32_t version; /* of the residual that is read; the other is written */
    const void *from; /* memory of the caller's; NULL: the staging */
    uint32_t words[GYRE_BIRTH_MOST_WORDS];
} gyre_birth_launch;

typedef struct gyre_birth_driver {
    size_t size;
    /* UNSUPPORTED: the device does not round as IEEE 754, has no doubles or no
     * room; PLUGIN_BAD: the text holds the build log; INVALID, NOT_FOUND: there
     * is no such memory or device. */
    gyre_status (*open)(const gyre_services *services,
                        const gyre_birth_plan *plan, void **out,
                        gyre_error *error);
    void (*close)(void *birth);
    /* Are these bytes all of one piece of memory that kernels can read? */
    int (*reaches)(void *birth, int32_t device, const void *data,
                   uint64_t offset, uint64_t bytes);
    gyre_status (*launch)(void *birth, const gyre_birth_launch *launch,
                          gyre_error *error);
    /* Between a block and the host; both wait for the queue. */
    gyre_status (*read)(void *birth, uint32_t block, size_t at, size_t bytes,
                        void *host, gyre_error *error);
    gyre_status (*write)(void *birth, uint32_t block, size_t at, size_t bytes,
                         const void *host, gyre_error *error);
    /* From one version of the residual to the other; zeros to one. */
    gyre_status (*copy)(void *birth, uint32_t from, uint32_t to, size_t at,
                        size_t bytes, gyre_error *error);
    gyre_status (*clear)(void *birth, uint32_t block, size_t at, size_t bytes,
                         gyre_error *error);
    gyre_status (*wait)(void *birth, gyre_error *error);
} gyre_birth_driver;

typedef struct gyre_driver {
    size_t size;
    const char *language; /* of device/source.h: "opencl" or "cuda" */
    /* "name (driver, memory)" of device `index`.  Errors: NOT_FOUND past the
     * last one, UNSUPPORTED when the driver is missing (says what to
     * install). */
    gyre_status (*describe)(const gyre_services *services, uint32_t index,
                            char *text, size_t size, gyre_error *error);
    /* Build a program without running it.  target: the driver's architecture
     * ("sm_90"), or NULL for its first device.  PLUGIN_BAD: the text holds the
     * build log. */
    gyre_status (*compile)(const gyre_services *services, const char *source,
                           const char *target, gyre_error *error);
    gyre_status (*open)(const gyre_services *services,
                        const gyre_device_plan *plan, void **out,
                        gyre_error *error);
    /* Waits for what runs. */
    void (*close)(void *device);
    /* Host memory of `input_bytes` that the next launch on this lane reads. */
    void *(*input)(void *device, uint32_t lane);
    /* Page-lock memory that launches use as state; failure is no fault. */
    void (*pin)(void *device, void *data, size_t bytes);
    void (*unpin)(void *device, void *data, size_t bytes);
    gyre_status (*submit)(void *device, uint32_t lane,
                          const gyre_launch *launch, gyre_error *error);
    /* Is what was submitted over?  Never waits. */
    int (*ready)(void *device, uint32_t lane);
    gyre_status (*finish)(void *device, uint32_t lane, gyre_error *error);
    /* Device memory held, bytes. */
    uint64_t (*memory)(void *device);
    /* Copy from somebody's device memory (gyre_gradient) to the host; waits. */
    gyre_status (*fetch)(const gyre_services *services, int32_t device,
                         const void *data, uint64_t offset, size_t bytes,
                         void *host, gyre_error *error);
    /* 0: opened only by leave of allow_inexact.  NULL: always exact. */
    int (*exact)(void *device);
    const gyre_birth_driver *birth;
} gyre_driver;

#endif
