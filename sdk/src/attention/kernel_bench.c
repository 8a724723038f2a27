/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of a block kernel between products of its own BLAS. */
#include "config.h"

#include "attention/kernel_f32.h"
#include "attention/team.h"
#include <gyre/kernel.h>

#include <math.h>
#include <string.h>
#include <time.h>

/* Q K V O DO DQ DK DV, then LSE, delta, then A B C of the product. */
enum { Q, K, V, O, DO, DQ, DK, DV, LSE, DELTA, A, B, C, ARRAYS };

struct gyre_kernel_bench {
    gyre_context *context;
    const gyre_kernel *kernel;
    gyre_kernel_bench_request request;
    gyre_mask mask;
    gyre_piece q, kv;
    gyre_block block;
    gyre_product product;
    double area;
    char *arrays[ARRAYS];
    size_t bytes[ARRAYS];
    gyre_kernel_run run;
    gyre_team team;
};

static gyre_status complete(gyre_kernel_bench_request *r, gyre_error *error)
{
    r->kernel = r->kernel != NULL ? r->kernel : "f32";
    r->tokens = r->tokens > 0 ? r->tokens : 4096;
    r->kv_tokens = r->kv_tokens > 0 ? r->kv_tokens : r->tokens;
    r->heads = r->heads > 0 ? r->heads : 1;
    r->kv_heads = r->kv_heads > 0 ? r->kv_heads : r->heads;
    r->head_dim = r->head_dim > 0 ? r->head_dim : 128;
    r->square = r->square > 0 ? r->square : 1024;
    r->workers = r->workers > 0 ? r->workers : 1;
    if (r->tokens > 1 << 24 || r->kv_tokens > 1 << 24 || r->heads > 4096 ||
        r->head_dim > 65536 || r->square > 1 << 15 ||
        r->workers > GYRE_MAX_WORKERS)
        return gyre_fail(
            error, GYRE_INVALID,
            "kernel bench: %llu x %llu tokens, %u heads of %u, "
            "product of %u, %u workers: at most 2^24, 4096, 65536, 32768, "
            "%u",
            (unsigned long long)r->tokens, (unsigned long long)r->kv_tokens,
            r->heads, r->head_dim, r->square, r->workers, GYRE_MAX_WORKERS);
    return GYRE_OK;
}

static void sizes(gyre_kernel_bench *bench)
{
    const gyre_kernel_bench_request *r = &bench->request;
    size_t in = gyre_dtype_bytes(bench->kernel->dtype);
    size_t q = r->heads * r->tokens, kv = r->kv_heads * r->kv_tokens;
    size_t dim = r->head_dim, n = (size_t)r->square * r->square;
    const size_t bytes[ARRAYS] = {
        [Q] = q * dim * in,  [K] = kv * dim * in, [V] = kv * dim * in,
        [O] = q * dim * 4,   [DO] = q * dim * in, [DQ] = q * dim * 4,
        [DK] = kv * dim * 4, [DV] = kv * dim * 4, [LSE] = q * 4,
        [DELTA] = q * 4,     [A] = n * 4,         [B] = n * 4,
        [C] = n * 4};

    memcpy(bench->bytes, bytes, sizeof(bytes));
}

static void fill(gyre_kernel_bench *bench, int which, gyre_dtype dtype)
{
    size_t each = gyre_dtype_bytes(dtype);

    for (size_t i = 0; i < bench->bytes[which] / each; i++) {
        uint32_t bits =
            gyre_hash((uint32_t)which, (uint32_t)(i >> 32), (uint32_t)i);
        float x = (float)(bits >> 8) * 0x1p-23f - 1.0f;

        gyre_from_f32(dtype, &x, bench->arrays[which] + i * each, 1);
    }
}

static gyre_plane plane(gyre_kernel_bench *bench, int which, uint32_t dim,
                        uint64_t rows, gyre_dtype dtype)
{
    size_t row = dim * gyre_dtype_bytes(dtype);

    return (gyre_plane){
        .at = bench->arrays[which], .row = row, .head = row * rows, .batch = 0};
}

static void describe(gyre_kernel_bench *bench)
{
    const gyre_kernel_bench_request *r = &bench->request;
    gyre_dtype in = bench->kernel->dtype;
    uint32_t dim = r->head_dim;
    gyre_chunk rows = {.length = r->tokens, .stride = 1};
    gyre_chunk keys = {.length = r->kv_tokens, .stride = 1};

    bench->mask =
        (gyre_mask){.size = sizeof(gyre_mask), .causal = r->full == 0};
    bench->q = (gyre_piece){.length = r->tokens, .stride = 1};
    bench->kv = (gyre_piece){.length = r->kv_tokens, .stride = 1};
    bench->area = (double)gyre_mask_area(&bench->mask, 1, &rows, &keys) *
                  (double)r->heads;
    bench->block = (gyre_block){
        .batch = 1,
        .heads = r->heads,
        .kv_heads = r->kv_heads,
        .h1 = r->heads,
        .head_dim = dim,
        .v_head_dim = dim,
        .mask = &bench->mask,
        .q = &bench->q,
        .kv = &bench->kv,
        .q_count = 1,
        .kv_count = 1,
        .Q = plane(bench, Q, dim, r->tokens, in),
        .K = plane(bench, K, dim, r->kv_tokens, in),
        .V = plane(bench, V, dim, r->kv_tokens, in),
        .O = plane(bench, O, dim, r->tokens, GYRE_F32),
        .LSE = plane(bench, LSE, 1, r->tokens, GYRE_F32),
        .DO = plane(bench, DO, dim, r->tokens, in),
        .L = plane(bench, LSE, 1, r->tokens, GYRE_F32),
        .D = plane(bench, DELTA, 1, r->tokens, GYRE_F32),
        .DQ = plane(bench, DQ, dim, r->tokens, GYRE_F32),
        .DK = plane(bench, DK, dim, r->kv_tokens, GYRE_F32),
        .DV = plane(bench, DV, dim, r->kv_tokens, GYRE_F32),
    };
    bench->product = (gyre_product){
        .m = r->square,
        .n = r->square,
        .k = r->square,
        .alpha = 1.0f,
        .a = (const float *)(const void *)bench->arrays[A],
        .b = (const float *)(const void *)bench->arrays[B],
        .c = (float *)(void *)bench->arrays[C],
        .lda = r->square,
        .ldb = r->square,
        .ldc = r->square,
    };
}

void gyre_kernel_bench_close(gyre_kernel_bench *bench)
{
    if (bench == NULL)
        return;
    for (int i = 0; i < ARRAYS; i++)
        gyre_free_aligned(bench->context, bench->arrays[i], bench->bytes[i],
                          64);
    gyre_free_aligned(bench->context, bench->run.scratch,
                      bench->run.scratch_bytes, 64);
    gyre_team_close(&bench->team);
    gyre_free(bench->context, bench, 1, sizeof(*bench));
}

static gyre_status take(gyre_kernel_bench *bench, gyre_error *error)
{
    sizes(bench);
    for (int i = 0; i < ARRAYS; i++) {
        bench->arrays[i] =
            gyre_alloc_aligned(bench->context, bench->bytes[i], 64);
        if (bench->arrays[i] == NULL)
            return gyre_fail(error, GYRE_NO_MEMORY,
                             "kernel bench: no memory for %zu bytes; give "
                             "fewer tokens or heads",
                             bench->bytes[i]);
    }
    describe(bench);
    bench->run.workers = 1;
    bench->run.scratch_bytes =
        bench->kernel->scratch(&bench->block) * bench->request.workers;
    bench->run.scratch =
        gyre_alloc_aligned(bench->context, bench->run.scratch_bytes, 64);
    if (bench->run.scratch == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY,
                         "kernel bench: no memory for scratch");
    fill(bench, A, GYRE_F32);
    fill(bench, B, GYRE_F32);
    fill(bench, Q, bench->kernel->dtype);
    fill(bench, K, bench->kernel->dtype);
    fill(bench, V, bench->kernel->dtype);
    fill(bench, DO, bench->kernel->dtype);
    gyre_status status = gyre_team_open(bench->context, bench->request.workers,
                                        &bench->team, error);
    return status == GYRE_OK
               ? gyre_block_check(bench->kernel, &bench->block, true, error)
               : status;
}

gyre_status gyre_kernel_bench_open(gyre_context *context,
                                   const gyre_kernel_bench_request *request,
                                   gyre_kernel_bench **out, gyre_error *error)
{
    gyre_kernel_bench_request all = *request;
    gyre_status status = complete(&all, error);
    const gyre_kernel *kernel;

    if (status != GYRE_OK)
        return status;
    kernel = gyre_kernel_find(all.kernel);
    if (kernel == NULL)
        return gyre_fail(error, GYRE_NOT_FOUND,
                         "no block kernel '%s'; there are f32 and bf16",
                         all.kernel);
    if (kernel->sum != GYRE_F32)
        return gyre_fail(error, GYRE_UNSUPPORTED,
                         "block kernel '%s' has no product to be held "
                         "against: take f32 or bf16",
                         all.kernel);
    gyre_kernel_bench *bench = gyre_alloc_zero(context, 1, sizeof(*bench));
    if (bench == NULL)
        return gyre_fail(error, GYRE_NO_MEMORY, "kernel bench: no memory");
    bench->context = context;
    bench->kernel = kernel;
    bench->request = all;
    status = take(bench, error);
    if (status != GYRE_OK) {
        gyre_kernel_bench_close(bench);
        return status;
    }
    *out = bench;
    return GYRE_OK;
}

void gyre_kernel_bench_get_info(const gyre_kernel_bench *bench,
                                gyre_kernel_bench_info *out)
{
    double dim = (double)bench->request.head_dim;
    double n = (double)bench->request.square;

    *out = (gyre_kernel_bench_info){.size = sizeof(*out),
                                    .area = bench->area,
                                    .attend_flops = 4.0 * dim * bench->area,
                                    .grad_flops = 10.0 * dim * bench->area,
                                    .product_flops = 2.0 * n * n * n,
                                    .blas = gyre_multiply_name(),
                                    .exponential = gyre_row_exponential()};
}

/* Others on the machine take turns with us: their time is not ours. */
static double spent(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double product(const gyre_kernel_bench *bench)
{
    double before = spent();

    gyre_multiply(&bench->product);
    return spent() - before;
}

static void identities(gyre_kernel_bench *bench)
{
    float *lse = (float *)(void *)bench->arrays[LSE];

    for (size_t i = 0; i < bench->bytes[LSE] / 4; i++)
        lse[i] = -INFINITY;
    memset(bench->arrays[O], 0, bench->bytes[O]);
    for (int i = DQ; i <= DV; i++)
        memset(bench->arrays[i], 0, bench->bytes[i]);
    memset(bench->arrays[DELTA], 0, bench->bytes[DELTA]);
}

/* Both passes as `run` shares them out. */
static gyre_status pass_by_clock(gyre_kernel_bench *bench,
                                 const gyre_kernel_run *run, double *attend,
                                 double *grad, gyre_error *error)
{
    identities(bench);
    uint64_t begin = gyre_now();
    gyre_status status = bench->kernel->attend(&bench->block, run, error);
    uint64_t middle = gyre_now();
    if (status == GYRE_OK)
        status = bench->kernel->grad(&bench->block, run, error);
    *attend = (double)(middle - begin);
    *grad = (double)(gyre_now() - middle);
    return status;
}

static gyre_status alone_and_all(gyre_kernel_bench *bench,
                                 gyre_kernel_times *times, gyre_error *error)
{
    gyre_team_start(&bench->team);
    gyre_kernel_run all = bench->run;
    all.user = &bench->team;
    all.each = gyre_team_each;
    all.workers = bench->team.started;
    gyre_status status =
        pass_by_clock(bench, &bench->run, &times->attend_passed[0],
                      &times->grad_passed[0], error);
    if (status == GYRE_OK)
        status = pass_by_clock(bench, &all, &times->attend_passed[1],
                               &times->grad_passed[1], error);
    gyre_team_stop(&bench->team);
    return status;
}

gyre_status gyre_kernel_bench_round(gyre_kernel_bench *bench,
                                    gyre_kernel_times *out, gyre_error *error)
{
    gyre_kernel_times times = {.size = sizeof(times)};
    size_t size = out->size < sizeof(times) ? out->size : sizeof(times);
    gyre_fp saved = gyre_fp_pin();

    identities(bench);
    times.product[0] = product(bench);
    double before = spent();
    gyre_status status =
        bench->kernel->attend(&bench->block, &bench->run, error);
    times.attend = spent() - before;
    times.product[1] = product(bench);
    before = spent();
    if (status == GYRE_OK)
        status = bench->kernel->grad(&bench->block, &bench->run, error);
    times.grad = spent() - before;
    times.product[2] = product(bench);
    if (status == GYRE_OK && bench->request.workers > 1)
        status = alone_and_all(bench, &times, error);
    gyre_fp_restore(saved);
    if (status == GYRE_OK) {
        times.size = out->size;
        memcpy(out, &times, size);
    }
    return status;
}
