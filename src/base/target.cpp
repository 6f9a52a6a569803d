#include "base/target.h"

#include <sstream>

namespace braze {

std::string text(const Target& t) {
  std::ostringstream out;
  const char* names[] = {"x86-64", "aarch64", "nvidia"};
  out << names[static_cast<int>(t.architecture)] << " " << t.model << (t.features.empty() ? "" : " ") << t.features
      << (t.host ? ", host" : "") << ", vectors " << t.vector_bits;
  if (t.is_gpu())
    out << ", sm " << t.sm << ", multiprocessors " << t.multiprocessors << ", threads " << t.threads << ", registers "
        << t.registers << ", shared " << t.shared_bytes;
  else
    out << ", masked " << t.masked_load << ", gather " << t.gather << ", scatter " << t.scatter << ", streaming "
        << t.streaming_stores << ", library " << t.library_bits << ", cache " << t.cache_bytes;
  out << ", libraries " << t.fuses_epilogues << t.adds_matrix_free << t.slow_thin_products << t.slow_odd_rows
      << t.prefers_channels_last;
  return out.str();
}

Target nvidia_gpu(int sm) {
  Target t;
  t.architecture = Target::Architecture::Nvidia;
  t.model = "sm_" + std::to_string(sm);
  t.vector_bits = 32 * 32;
  t.sm = sm;
  t.fuses_epilogues = t.adds_matrix_free = t.slow_thin_products = t.slow_odd_rows = t.prefers_channels_last = true;
  return t;
}

Target h200() {
  Target t = nvidia_gpu(90);
  t.multiprocessors = 132;
  t.threads = 2048;
  t.registers = 65536;
  t.shared_bytes = 48 << 10;
  return t;
}

}  // namespace braze
