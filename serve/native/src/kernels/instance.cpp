// The kernels of one instruction set. This file is compiled once per set: DRAGOMAN_SET names it, and its options
// allow its instructions (serve/native/build.py). All sets need -ffp-contract=off.
//
// Everything but the table has internal linkage and no template of the standard library is used: the linker keeps
// one copy of an inline function, and a copy with wide instructions would stop a processor without them.
#include "kernels/attend_float.hpp"
#include "kernels/attend_int8.hpp"
#include "kernels/choose.hpp"
#include "kernels/embed.hpp"
#include "kernels/normalize.hpp"
#include "kernels/product.hpp"
#include "kernels/product_amx.hpp"
#include "kernels/recur.hpp"

namespace dragoman::DRAGOMAN_SET {

extern const Kernels kKernels;
const Kernels kKernels = {
    kName,       int8_stride, quantize,    kMultiplyInt8, multiply_float, normalize,    embed_int8,    embed_float,
    write_int8,  write_float, attend_int8, attend_float,  recur,          choose_strip, choose_merge,  choose_finish,
};

}  // namespace dragoman::DRAGOMAN_SET
