#include "capture/builtins/sorting.h"

#include <algorithm>

#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {

std::vector<Variable*> sort_variables(Translator& tr, const std::vector<Variable*>& values, Variable* key,
                                      bool reverse) {
  struct Item {
    Variable *key, *value;
  };
  std::vector<Item> v;
  for (Variable* x : values) v.push_back({key && !is_none(tr.force(key)) ? tr.call(key, {x}) : x, x});
  // Insertion by binary search: the comparisons may run user code, which std::stable_sort would not survive throwing
  // through with a defined order of calls.
  if (reverse) std::reverse(v.begin(), v.end());
  std::vector<Item> out;
  for (const Item& x : v) {
    size_t lo = 0, hi = out.size();
    while (lo < hi) {
      size_t mid = (lo + hi) / 2;
      if (tr.truth(tr.compare(Py_LT, x.key, out[mid].key)))
        hi = mid;
      else
        lo = mid + 1;
    }
    out.insert(out.begin() + static_cast<long>(lo), x);
  }
  if (reverse) std::reverse(out.begin(), out.end());
  std::vector<Variable*> result;
  for (const Item& x : out) result.push_back(x.value);
  return result;
}

}  // namespace braze::capture
