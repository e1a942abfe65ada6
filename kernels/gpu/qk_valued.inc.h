/*
 * qk_valued.inc.h - codes that stand for values of their own, small floats and tables alike, as a
 * template for one working precision. The specification is kernels/codes/valued.h; each step here
 * is the same single operation.
 *
 * The including file defines IN(op), WORK, and the bits of that type: BITS, BITS_OF(x), OF_BITS(x),
 * MAN_BITS and EXP_BIAS. The values of a table lie in the block, from v->book on.
 */

/* Without a sign, which 0 may have too. */
QK_FN WORK IN(size_of)(WORK x)
{
    return OF_BITS(BITS_OF(x) << 1 >> 1);
}

/* The exponent field that a number of this size is rounded with. */
QK_FN BITS IN(float_exponent)(const struct qk_values *v, WORK size)
{
    BITS own = BITS_OF(size) >> MAN_BITS, least = (BITS)(EXP_BIAS + v->least_exp);
    return own > least ? own : least;
}

/* A size that is not above the largest value, and the power of two that rounds it in a sum. */
QK_FN WORK IN(float_size)(const struct qk_values *v, WORK t, WORK *power)
{
    WORK size = IN(size_of)(t), largest = (WORK)QK_F32(v->largest);
    size = size < largest ? size : largest;
    *power = OF_BITS((IN(float_exponent)(v, size) + MAN_BITS - v->man_bits) << MAN_BITS);
    return size;
}

QK_FN qk_u32 IN(float_code)(const struct qk_values *v, WORK t)
{
    WORK power, size = IN(float_size)(v, t, &power);
    BITS field = IN(float_exponent)(v, size) - (BITS)(EXP_BIAS + v->least_exp);
    BITS code = (BITS_OF(size + power) - BITS_OF(power)) + (field << v->man_bits);
    qk_u32 is_negative = (qk_u32)(BITS_OF(t) >> (8 * sizeof(WORK) - 1));
    return (qk_u32)code | (is_negative ? v->sign : 0u);
}

QK_FN WORK IN(float_near)(const struct qk_values *v, WORK t)
{
    WORK power, size = IN(float_size)(v, t, &power), near = (size + power) - power;
    return t < 0 ? -near : near;
}

/* Half of the gap to the next value, outwards or towards 0. */
QK_FN WORK IN(float_reach)(const struct qk_values *v, WORK value, qk_u32 outwards)
{
    WORK size = IN(size_of)(value);
    BITS exponent = IN(float_exponent)(v, size);
    WORK middle = OF_BITS((exponent - v->man_bits - 1) << MAN_BITS);
    qk_u32 is_power = BITS_OF(size) == exponent << MAN_BITS;
    qk_u32 is_least = exponent == (BITS)(EXP_BIAS + v->least_exp);
    return is_power && !is_least && !outwards ? middle / 2 : middle;
}

/* The number of limits below t, which ascend: a limit is the midpoint of two neighbours. */
QK_FN qk_u32 IN(book_code)(const QK_GLOBAL float *book, WORK t)
{
    qk_u32 code = 0;
    for (qk_u32 step = QK_BOOK_SIZE / 2; step > 0; step /= 2) {
        qk_u32 at = code + step - 1;
        code += t > ((WORK)book[at] + (WORK)book[at + 1]) / 2 ? step : 0u;
    }
    return code;
}

QK_FN WORK IN(book_reach)(const QK_GLOBAL float *book, qk_u32 code, qk_u32 up)
{
    qk_u32 lower = up ? code : code - 1;
    qk_u32 at = code == 0 ? 0 : qk_min(lower, QK_BOOK_SIZE - 2);
    return ((WORK)book[at + 1] - (WORK)book[at]) / 2;
}

QK_FN const QK_GLOBAL float *IN(book_of)(const QK_GLOBAL qk_u8 *block, const struct qk_values *v)
{
    return (const QK_GLOBAL float *)(block + v->book);
}

/* The code of a quotient, which is not NaN. */
QK_FN qk_u32 IN(valued_code)(const QK_GLOBAL qk_u8 *block, const struct qk_values *v, WORK t)
{
    return v->kind == QK_CODES_BOOK ? IN(book_code)(IN(book_of)(block, v), t)
                                    : IN(float_code)(v, t);
}

/* What a code that is a number stands for, in scales. */
QK_FN WORK IN(value)(const QK_GLOBAL qk_u8 *block, const struct qk_values *v, qk_u32 code)
{
    return (WORK)(v->kind == QK_CODES_BOOK ? IN(book_of)(block, v)[code] : qk_float_value(v, code));
}

#undef BITS
#undef BITS_OF
#undef OF_BITS
#undef MAN_BITS
#undef EXP_BIAS
