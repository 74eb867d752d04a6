// AVX2 with AVX-VNNI.
#pragma once

#include "simd/avx.hpp"

#ifndef DRAGOMAN_AVX_VNNI
#define DRAGOMAN_AVX_VNNI "%{vex%}"  // the prefix of its instructions; a test replaces it
#endif

namespace dragoman {
namespace {

constexpr const char* kName = "avx-vnni";
constexpr int kInt8TileRows = 6;

INLINE IntRegister multiply_add(IntRegister sum, IntRegister unsigned_bytes, IntRegister signed_bytes) {
  __asm__(DRAGOMAN_AVX_VNNI " vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(unsigned_bytes), "x"(signed_bytes));
  return sum;
}

}  // namespace
}  // namespace dragoman

#include "simd/vnni.hpp"
