/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt.h - a small byte-level GPT in C11, written by hand, to have something
 * real to train in the examples.
 *
 *   tokens -> wte + wpe -> layers x { x += attn(ln_1(x)); x += mlp(ln_2(x)) }
 *          -> ln_f -> lm_head -> logits over 256 bytes
 *
 * LayerNorm has eps 1e-5, weight and bias. c_attn, both c_proj and c_fc have
 * biases, lm_head has none and shares nothing with wte. GELU is the tanh
 * form, gelu(x) = x * sigmoid(2 * sqrt(2/pi) * (x + 0.044715 x^3)). There is
 * no dropout. All arithmetic is f32; the mean loss is summed in double.
 *
 * Determinism. One machine, one BLAS, one seed: the same bits in every run,
 * for every number of threads. Work is cut into tiles whose shapes depend on
 * the model and the batch only, and each tile has one owner and one order of
 * summation; see gpt_pool.c.
 *
 * Process-wide effect: gpt_create asks OpenBLAS, if that is the BLAS, to run
 * each call on the calling thread (openblas_set_num_threads(1)), because the
 * tiles already occupy the cores. With another BLAS ask it for one thread.
 *
 * Threads: a gpt may be used by one thread at a time; different gpt objects
 * are independent.
 */
#ifndef GYRE_EXAMPLE_GPT_H
#define GYRE_EXAMPLE_GPT_H

#include <stddef.h>
#include <stdint.h>

#define GPT_VOCABULARY 256

typedef struct gpt gpt;

typedef struct gpt_config {
    size_t layers;  /* at least 1 */
    size_t heads;   /* at least 1, divides width */
    size_t width;   /* elements of the residual stream */
    size_t context; /* longest sequence, in tokens */
    size_t threads; /* 0: one for each processor that is online */
    uint64_t seed;  /* of the initial weights */
} gpt_config;

/*
 * One trainable tensor. Weights of linear layers are [out][in], row-major,
 * as in PyTorch's nn.Linear. Names follow the GPT-2 state dict.
 * decay is 1 for every 2-D tensor (embeddings included, as nanoGPT does) and
 * 0 for biases and LayerNorm. data and grad belong to the gpt and stay where
 * they are until gpt_destroy; the caller may write data between calls.
 */
typedef struct gpt_parameter {
    const char *name;
    size_t shape[2]; /* shape[1] is 1 when rank is 1 */
    int rank;
    int decay;
    size_t n; /* elements */
    float *data;
    float *grad;
} gpt_parameter;

/*
 * Returns NULL on failure and writes the reason to errbuf (may be NULL).
 * Initialisation is GPT-2's: N(0, 0.02), the two c_proj of every layer
 * divided by sqrt(2 * layers), biases 0, LayerNorm weight 1.
 */
gpt *gpt_create(const gpt_config *config, char *errbuf, size_t errsize);
void gpt_destroy(gpt *g);

const gpt_config *gpt_configuration(const gpt *g); /* threads resolved */
/* The reason of the last call that failed; "" when none has. */
const char *gpt_error(const gpt *g);

size_t gpt_parameter_count(const gpt *g);
/* NULL when i is out of range. */
const gpt_parameter *gpt_parameter_at(const gpt *g, size_t i);

/*
 * Bytes that a gpt of this configuration allocates from the heap when it is
 * used with batches of up to `batch` sequences of `context` tokens; 0 when
 * the configuration is invalid or the sum overflows. Stacks of the threads
 * and the packing buffers inside the BLAS are not counted.
 */
size_t gpt_memory(const gpt_config *config, size_t batch);

/*
 * Name, shape and the rest of parameter i of a model that is not made yet;
 * data and grad are NULL, name points into `name`. 0, or -1 past the end.
 */
enum { GPT_NAME_BYTES = 40 };
int gpt_parameter_plan(const gpt_config *config, size_t i,
                       char name[GPT_NAME_BYTES], gpt_parameter *out);

/*
 * Allocates the workspace for `batch` sequences ahead of the first step.
 * Without it the workspace grows when a larger batch arrives. 0, or -1.
 */
int gpt_reserve(gpt *g, size_t batch);
/* Frees the workspace; the next step allocates it again. */
void gpt_release(gpt *g);

/*
 * Called on the thread that called gpt_forward_backward, in an order that
 * depends on the number of layers only (last layer first), once for each
 * parameter, when its gradient is final. From then on this backward pass
 * neither reads nor writes that parameter's data or grad, so an optimizer
 * may already change it. The callback must not call back into g.
 */
typedef void (*gpt_gradient_fn)(gpt *g, size_t parameter, void *user);
void gpt_on_gradient(gpt *g, gpt_gradient_fn fn, void *user);

/*
 * Called on the thread that called gpt_forward_backward, gpt_loss or
 * gpt_generate, once for each parameter in that call, in the order of the
 * table (0, 1, 2, ...), which is the order of the forward pass. Until then
 * this call has not read the parameter's data, so an optimizer may still be
 * writing them on another thread; the callback returns when they are
 * complete. Each comes shortly before the layer that needs it: wte and wpe
 * with the first half of layer 0 (ln_1, c_attn), the second half of a
 * layer with the first half of the next, that of the last layer with ln_f
 * and lm_head. gpt_generate calls it during the first byte only, a call that
 * fails or generates 0 bytes not at all. The callback must not call back
 * into g. NULL, the initial value: data are complete before every call.
 */
typedef void (*gpt_parameter_fn)(gpt *g, size_t parameter, void *user);
void gpt_on_parameter(gpt *g, gpt_parameter_fn fn, void *user);

/*
 * Attention of all heads of one layer by somebody else, in gpt_forward_backward
 * and gpt_loss; generation keeps its own.  q, k, v and their gradients have row
 * stride 3 * heads * dim, out and dout heads * dim; heads stand side by side,
 * sequences after each other.  Causal, scale 1 / sqrt(dim).  backward comes
 * after the forward of the same layer and batch, layers in falling order, and
 * overwrites dq, dk, dv.  On the thread that called.  0, or -1 with the reason
 * in errbuf: then the step ends and returns -1; gradients that were announced
 * before are right.
 */
typedef struct gpt_attention_job {
    size_t layer, batch, length, heads, dim;
    const float *q, *k, *v;
    float *out;
    const float *dout; /* backward alone */
    float *dq, *dk, *dv;
} gpt_attention_job;

typedef struct gpt_attention_by {
    int (*forward)(void *user, const gpt_attention_job *job, char *errbuf,
                   size_t errsize);
    int (*backward)(void *user, const gpt_attention_job *job, char *errbuf,
                    size_t errsize);
    void *user;
} gpt_attention_by;

/* Copied; NULL: its own again.  Not within a call. */
void gpt_use_attention(gpt *g, const gpt_attention_by *by);

/*
 * tokens and targets are [batch][length], length <= context, values 0..255.
 * Returns the mean cross-entropy over batch * length positions, in nats, and
 * overwrites every grad with d(loss)/d(parameter) * grad_scale.
 * Returns -1 on failure, gpt_error() has the reason; NaN means the model
 * itself has diverged.
 */
double gpt_forward_backward(gpt *g, const int32_t *tokens,
                            const int32_t *targets, size_t batch, size_t length,
                            float grad_scale);
/* The same loss without gradients. */
double gpt_loss(gpt *g, const int32_t *tokens, const int32_t *targets,
                size_t batch, size_t length);

/*
 * Continues prompt by n bytes, written to out. temperature 0 takes the most
 * likely byte; top_k 0 keeps all 256. An empty prompt is read as one newline.
 * When the context is full, its later half is kept and computed again, so
 * the cost per byte stays that of one position. A pure function of the
 * weights and the arguments. 0, or -1 with gpt_error().
 */
int gpt_generate(gpt *g, const uint8_t *prompt, size_t prompt_length, size_t n,
                 double temperature, size_t top_k, uint64_t seed, uint8_t *out);

#endif
