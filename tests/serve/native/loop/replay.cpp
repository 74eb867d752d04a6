// Runs a fuzz harness on files, without libFuzzer.
#include <cstdint>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

int main(int count, char** paths) {
  for (int index = 1; index < count; ++index) {
    std::ifstream file(paths[index], std::ios::binary);
    const std::vector<char> content{std::istreambuf_iterator<char>(file), {}};
    if (!file || LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(content.data()), content.size()) != 0) return 1;
  }
  return 0;
}
