// The vocabulary of the instruction set that this file is compiled for: DRAGOMAN_SET names it.
#pragma once

#define DRAGOMAN_SET_portable 1
#define DRAGOMAN_SET_avx2 2
#define DRAGOMAN_SET_avx_vnni 3
#define DRAGOMAN_SET_avx512 4
#define DRAGOMAN_SET_neon 5
#define DRAGOMAN_JOIN_(a, b) a##b
#define DRAGOMAN_JOIN(a, b) DRAGOMAN_JOIN_(a, b)
#define DRAGOMAN_SET_NUMBER DRAGOMAN_JOIN(DRAGOMAN_SET_, DRAGOMAN_SET)

#if DRAGOMAN_SET_NUMBER == DRAGOMAN_SET_portable
#include "simd/portable.hpp"
#elif DRAGOMAN_SET_NUMBER == DRAGOMAN_SET_avx512
#include "simd/avx512.hpp"
#elif DRAGOMAN_SET_NUMBER == DRAGOMAN_SET_neon
#include "simd/neon.hpp"
#elif DRAGOMAN_SET_NUMBER == DRAGOMAN_SET_avx2
#include "simd/avx2.hpp"
#else
#ifndef DRAGOMAN_AVX_VNNI
#define DRAGOMAN_AVX_VNNI "%{vex%}"  // the prefix of its instructions; a test replaces it
#endif
#include "simd/avx2.hpp"
#endif
