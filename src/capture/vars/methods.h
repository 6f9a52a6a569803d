// Methods that CPython implements in C for a kind of value, as a table: name, number of arguments, function.
#pragma once
#include <span>
#include <string_view>

#include "capture/eval/translator.h"

namespace braze::capture {

template <class V>
struct Method {
  std::string_view name;
  size_t least, most;                        // positional arguments
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

// f(item) for each item, before the next is asked for: where getting an item runs code of the program's, that code sees
// what was done with those before, and after an exception it stays done. `asks_length`: before the first, as lists do.
template <class F>
void each_item(Translator& tr, Variable* from, F f, bool asks_length = false) {
  from = tr.force(from);
  if (!from->is(Kind::Generator) && !from->is(Kind::Iterator) && !from->is(Kind::Object)) {
    for (Variable* v : tr.unpack(from)) f(v);
    return;
  }
  Variable* iterator = tr.iter(from);
  if (asks_length) tr.ask_length(from);
  while (Variable* v = tr.next(iterator)) f(v);
}

}  // namespace braze::capture
