#include "base/options.h"

#include "base/hash.h"

namespace braze {

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
