#include "base/target.h"

#include <sstream>

namespace braze {

std::string Target::text() const {
  std::ostringstream out;
  const char* names[] = {"x86-64", "aarch64", "nvidia"};
  out << names[static_cast<int>(architecture)] << " " << model << (features.empty() ? "" : " ") << features
      << (host ? ", host" : "") << ", vectors " << vector_bits;
  if (is_gpu())
    out << ", sm " << sm << ", multiprocessors " << multiprocessors << ", threads " << threads << ", registers "
        << registers << ", shared " << shared_bytes;
  else
    out << ", masked " << masked_load << " " << masked_store << ", gather " << gather << ", scatter " << scatter
        << ", streaming " << streaming_stores << ", library " << library_bits << ", strips " << strips << ", sweeps "
        << sweeps_columns << ", cache " << cache_bytes;
  out << ", libraries " << fuses_epilogues << adds_matrix_free << slow_thin_products << slow_odd_rows
      << prefers_channels_last << biases_convolutions_apart << slow_depthwise << slow_f32_products << slow_bf16_products
      << slow_f16_products;
  return out.str();
}

Target nvidia_gpu(int sm) {
  Target t;
  t.architecture = Target::Architecture::Nvidia;
  t.model = "sm_" + std::to_string(sm);
  t.vector_bits = 32 * 32;
  t.sm = sm;
  t.fuses_epilogues = t.adds_matrix_free = t.slow_thin_products = t.slow_odd_rows = true;
  t.prefers_channels_last = t.biases_convolutions_apart = t.slow_depthwise = true;
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
