// Methods that CPython implements in C for a kind of value, as a table: name, number of arguments, function.
#pragma once
#include <span>
#include <string_view>

#include "capture/eval/variable.h"

namespace braze::capture {

template <class V>
struct Method {
  std::string_view name;
  size_t least, most;  // positional arguments
  Variable* (*run)(Translator&, V&, Args&);  // nullptr: not modelled for these arguments
};

// The first row for the name and number of arguments that gives a result; nullptr: there is none.
template <class V>
Variable* run_method(std::span<const Method<V>> table, Translator& tr, V& self, std::string_view name, Args& args) {
  for (const Method<V>& m : table)
    if (m.name == name && args.size() >= m.least && args.size() <= m.most)
      if (Variable* v = m.run(tr, self, args)) return v;
  return nullptr;
}

}  // namespace braze::capture
