/*
 * awq.h - the layout of AWQ, which vLLM, SGLang, transformers and mlx-lm load.
 */
#ifndef QP_FORMAT_AWQ_H
#define QP_FORMAT_AWQ_H

#include "formats/format.h"

/* What config.json says of an output (config in formats/format.h). */
void qp_awq_config(struct qp_writer *w, const struct qp_outline *outline);

#endif
