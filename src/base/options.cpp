#include "base/options.h"

#include "base/hash.h"

namespace braze {

namespace {
void write(ByteWriter& out, bool v) { out.number(v); }
void write(ByteWriter& out, int64_t v) { out.integer(v); }
void write(ByteWriter& out, double v) { out.real(v); }
template <class Choice>
  requires std::is_enum_v<Choice>
void write(ByteWriter& out, Choice v) {
  out.number(static_cast<uint64_t>(v));
}
}  // namespace

void describe(const Options& options, ByteWriter& out) {
#define BRAZE_OPTION(type, name, init, text) write(out, options.name);
#include "base/options.def"
#undef BRAZE_OPTION
  write(out, options.float8_saturates);
  write(out, options.packs_weights);
}

uint64_t hash_of(const Options& options) {
  Hasher h;
#define BRAZE_OPTION(type, name, init, text) h.add(options.name);
#include "base/options.def"
#undef BRAZE_OPTION
  h.add(options.float8_saturates);
  h.add(options.packs_weights);
  return h.value();
}

}  // namespace braze
