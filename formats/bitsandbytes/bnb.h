/*
 * bnb.h - the layout of bitsandbytes, which transformers loads: LLM.int8.
 */
#ifndef QP_FORMAT_BNB_H
#define QP_FORMAT_BNB_H

#include "formats/format.h"

/* What config.json says of an output (config in formats/format.h). */
void qp_bnb_config(struct qp_writer *w, const struct qp_outline *outline);

#endif
