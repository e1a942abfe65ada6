/*
 * select.c - the selections, and the table of names that the selection of linear layers keeps.
 *
 * The weights that it is after are the ones that every engine loads quantized: projections of
 * attention and of feed-forward layers, those of experts included. Everything else is kept, since
 * engines load it as it was, and it is small or loses most.
 */
#include "select.h"

#include "lib/base/text.h"

/*
 * What real tools leave alone, whatever they quantize: the default lists of llm-compressor's
 * recipes, transformers' fp8 and bitsandbytes, GPTQModel, ModelOpt and DeepSeek's own fp8.
 */
static const struct qp_keep keeps[] = {
    /* Norms, embeddings and heads: all of them. The names of heads are those of ChatGLM, Whisper
     * and of sequence classifiers; T5 has an embedding inside its first block. */
    QP_KEEP("norm"),
    QP_KEEP("embed"),
    QP_KEEP(".relative_attention_bias."),
    QP_KEEP("lm_head"),
    QP_KEEP("output_layer"),
    QP_KEEP("proj_out"),
    QP_KEEP(".score."),

    /* Routers of experts: a layer that chooses must not be coarse. .gate. is the router of Mixtral,
     * Qwen and DeepSeek; gate_proj is a projection and not meant. */
    QP_KEEP("router"),
    QP_KEEP(".gate."),
    QP_KEEP("shared_expert_gate"),

    /* State spaces and linear attention: what ModelOpt and Qwen's own fp8 checkpoints keep. */
    QP_KEEP("conv1d"),
    QP_KEEP("A_log"),
    QP_KEEP(".linear_attn.in_proj_a."),
    QP_KEEP(".linear_attn.in_proj_b."),
    QP_KEEP(".linear_attn.in_proj_ba."),

    /* DeepSeek's sparse attention: vLLM builds this layer without quantization. */
    QP_KEEP(".indexer.weights_proj."),

    /* Layers that predict further tokens: Qwen's, and those of DeepSeek in its last layer. */
    QP_KEEP("mtp"),
    QP_KEEP(".eh_proj."),
    QP_KEEP(".shared_head."),

    /* Towers of vision and audio and their projectors: llm-compressor's recipes, GPTQModel and
     * ModelOpt. vpm, apm and resampler are MiniCPM's, mlp1 is InternVL's projector. */
    QP_KEEP("visual"),
    QP_KEEP("vision"),
    QP_KEEP("audio"),
    QP_KEEP("projector"),
    QP_KEEP("resampler"),
    QP_KEEP(".vpm."),
    QP_KEEP(".apm."),
    QP_KEEP(".mlp1.#."),
    {NULL, NULL},
};

/* ---- Names -------------------------------------------------------------------------------------
 */

/* The place behind the pattern, which begins at a place of the name; 0 if it does not. */
static size_t match_at(const char *name, size_t n, size_t at, const char *pattern)
{
    for (; *pattern; pattern++) {
        const size_t first = at;
        if (*pattern != '#')
            at += at < n && name[at] == *pattern;
        else
            while (at < n && name[at] >= '0' && name[at] <= '9')
                at++;
        if (at == first)
            return 0;
    }
    return at;
}

bool qp_name_find(const char *name, size_t n, const char *pattern, size_t *begin, size_t *end)
{
    *begin = 0;
    *end = pattern[0] == '.' ? match_at(name, n, 0, pattern + 1) : 0;
    for (size_t at = 0; *end == 0 && at < n; at++) {
        const char *next = memchr(name + at, pattern[0], n - at);
        if (!next)
            return false;
        at = (size_t)(next - name);
        *begin = at;
        *end = match_at(name, n, at, pattern);
    }
    return *end > 0;
}

static bool has(const struct qp_tensor *t, const char *pattern)
{
    size_t begin, end;
    return qp_name_find(t->name, t->name_len, pattern, &begin, &end);
}

static const char *kept_by(const struct qp_keep *list, const struct qp_tensor *t)
{
    while (list->pattern && !has(t, list->pattern))
        list++;
    return list->reason;
}

bool qp_is_table_or_head(const struct qp_tensor *t)
{
    static const char *const patterns[] = {"embed", "embd",    ".wte.",
                                           ".wpe.", "lm_head", "output_layer"};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        if (has(t, patterns[i]))
            return true;
    }
    return false;
}

/* ---- Selections --------------------------------------------------------------------------------
 */

static const char *keep_none(const struct qp_tensor *t, const struct qp_format *format,
                             bool is_conv1d)
{
    (void)t;
    (void)format;
    (void)is_conv1d;
    return NULL;
}

static const char *keep_but_linear(const struct qp_tensor *t, const struct qp_format *format,
                                   bool is_conv1d)
{
    const char *reason = kept_by(keeps, t);
    if (!reason && format->keeps)
        reason = kept_by(format->keeps, t);
    if (reason)
        return reason;
    if (t->rank != 2)
        return t->rank == 3 && has(t, ".experts.") ? "3-D experts" : "not 2-D";
    if (!qp_ends_with(t->name, ".weight"))
        return "not a .weight";
    if (!has(t, ".#."))
        return "outside blocks";
    return is_conv1d ? "Conv1D" : NULL;
}

/* In the order of enum qplan_select, without the first. */
static const struct qp_selection selections[] = {
    {"all", "select:all", keep_none},
    {"linear", "select:linear", keep_but_linear},
};

const struct qp_selection *qp_selection_of(enum qplan_select select, const struct qp_format *format)
{
    if (select != QPLAN_SELECT_USUAL)
        return &selections[select - 1];
    const bool is_linear = format->select && strcmp(format->select, "linear") == 0;
    return &selections[is_linear];
}
