// The vocabulary of the instruction set that this file is compiled for: DRAGOMAN_SET names it and its header.
#pragma once

#define DRAGOMAN_TEXT_OF(text) #text
#define DRAGOMAN_TEXT(text) DRAGOMAN_TEXT_OF(text)
#include DRAGOMAN_TEXT(simd/DRAGOMAN_SET.hpp)

namespace dragoman {
namespace {

INLINE I32 first_sum(const std::int32_t* offset) {
  return kInputOffset == 0 ? broadcast(std::int32_t{0}) : load(offset);
}
INLINE I32 first_score(std::int32_t query_sum) { return broadcast(-kInputOffset * query_sum); }

}  // namespace
}  // namespace dragoman
