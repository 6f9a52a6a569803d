// Methods of lists and of deques.
#include <opcode.h>
#include <algorithm>

#include "capture/builtins/sorting.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/methods.h"

namespace braze::capture {
namespace {

bool is_deque(const ListVariable& l) { return l.cls == library().deque; }

// A deque that has a bound gives up items at its other end.
void bound_from_left(ListVariable& l) {
  while (l.maxlen >= 0 && static_cast<int64_t>(l.elements.size()) > l.maxlen) l.elements.erase(l.elements.begin());
}
void bound_from_right(ListVariable& l) {
  while (l.maxlen >= 0 && static_cast<int64_t>(l.elements.size()) > l.maxlen) l.elements.pop_back();
}

Variable* append(Translator& tr, ListVariable& l, Args& a) {
  l.change(tr);
  l.elements.push_back(a[0]);
  bound_from_left(l);
  return tr.none();
}

Variable* add_in_place(Translator& tr, ListVariable& l, Args& a) {
  auto add = [&](Variable* v) {
    l.change(tr);
    l.elements.push_back(v);
    bound_from_left(l);
  };
  Variable* from = tr.force(a[0]);
  if (from->is(Kind::Object) && from->as<ObjectVariable>()->base == &l)  // itself, as an object of a subclass
    for (Variable* v : std::vector<Variable*>(l.elements)) add(v);
  else
    each_item(tr, from, add, /*asks_length=*/!is_deque(l));
  return &l;
}

Variable* extend(Translator& tr, ListVariable& l, Args& a) { return add_in_place(tr, l, a), tr.none(); }

Variable* repeat_in_place(Translator& tr, ListVariable& l, Args& a) {
  if (l.cls != &PyList_Type) return nullptr;
  Variable* product = tr.force(tr.binary_op(NB_MULTIPLY, &l, a[0]));
  l.change(tr);
  l.elements = product->as<ListVariable>()->elements;
  return &l;
}

Variable* init(Translator& tr, ListVariable& l, Args& a) {
  if (!a.kw.empty() || l.cls != &PyList_Type) return nullptr;
  std::vector<Variable*> items = a.size() ? tr.listed(a[0]) : std::vector<Variable*>{};
  l.change(tr);
  l.elements = std::move(items);
  return tr.none();
}

Variable* insert(Translator& tr, ListVariable& l, Args& a) {
  if (l.maxlen >= 0) return nullptr;
  int64_t i = sequence_index(tr, a[0], nullptr), size = l.len(tr);
  if (i < 0) i = std::max<int64_t>(0, i + size);
  l.change(tr);
  l.elements.insert(l.elements.begin() + std::min(i, size), a[1]);
  return tr.none();
}

Variable* pop(Translator& tr, ListVariable& l, Args& a) {
  if (is_deque(l) && a.size()) return nullptr;  // TypeError
  if (l.elements.empty())
    tr.raise(PyExc_IndexError, l.cls == &PyList_Type ? "pop from empty list" : "pop from an empty deque");
  size_t i =
      checked_index(tr, a.size() ? sequence_index(tr, a[0], nullptr) : -1, l.elements.size(), "pop index out of range");
  l.change(tr);
  Variable* v = l.elements[i];
  l.elements.erase(l.elements.begin() + static_cast<long>(i));
  return v;
}

Variable* remove(Translator& tr, ListVariable& l, Args& a) {
  for (size_t i = 0; i < l.elements.size(); ++i)
    if (tr.same_item(l.elements[i], a[0]) && i < l.elements.size()) {
      l.change(tr);
      l.elements.erase(l.elements.begin() + static_cast<long>(i));
      return tr.none();
    }
  if (is_deque(l)) return nullptr;  // its message has the item's repr
  tr.raise(PyExc_ValueError, "list.remove(x): x not in list");
}

Variable* clear(Translator& tr, ListVariable& l, Args&) {
  l.change(tr);
  l.elements.clear();
  return tr.none();
}

Variable* reverse(Translator& tr, ListVariable& l, Args&) {
  const uint64_t changes = l.changes;
  l.change(tr);
  if (l.type() == library().deque) l.changes = changes;  // its iterators do not mind
  std::reverse(l.elements.begin(), l.elements.end());
  return tr.none();
}

Variable* sort(Translator& tr, ListVariable& l, Args& a) {
  Variable *key = a.take_kw("key"), *descending = a.take_kw("reverse");
  bool down = descending && tr.truth(descending);
  if (!a.kw.empty()) return nullptr;
  l.change(tr);
  // Empty while it is sorted, as in CPython.
  std::vector<Variable*> all = std::move(l.elements), sorted;
  l.elements.clear();
  try {
    sorted = sort_variables(tr, all, key, down);
  } catch (PyRaise&) {
    l.elements = std::move(all);
    throw;
  }
  bool modified = !l.elements.empty();
  l.elements = std::move(sorted);
  if (modified) tr.raise(PyExc_ValueError, "list modified during sort");
  return tr.none();
}

Variable* copy(Translator& tr, ListVariable& l, Args&) {
  auto* c = tr.make<ListVariable>(l.elements, l.cls);
  c->maxlen = l.maxlen;
  return c;
}

Variable* set_item(Translator& tr, ListVariable& l, Args& a) { return l.setitem(tr, a[0], a[1]), tr.none(); }
Variable* delete_item(Translator& tr, ListVariable& l, Args& a) { return l.delitem(tr, a[0]), tr.none(); }

// ---- of deques alone ----

Variable* append_left(Translator& tr, ListVariable& l, Args& a) {
  if (!is_deque(l)) return nullptr;
  l.change(tr);
  l.elements.insert(l.elements.begin(), a[0]);
  bound_from_right(l);
  return tr.none();
}

Variable* pop_left(Translator& tr, ListVariable& l, Args&) {
  if (!is_deque(l)) return nullptr;
  if (l.elements.empty()) tr.raise(PyExc_IndexError, "pop from an empty deque");
  l.change(tr);
  Variable* v = l.elements.front();
  l.elements.erase(l.elements.begin());
  return v;
}

Variable* extend_left(Translator& tr, ListVariable& l, Args& a) {
  if (!is_deque(l)) return nullptr;
  each_item(tr, a[0], [&](Variable* v) {
    l.change(tr);
    l.elements.insert(l.elements.begin(), v);
    bound_from_right(l);
  });
  return tr.none();
}

Variable* rotate(Translator& tr, ListVariable& l, Args& a) {
  if (!is_deque(l)) return nullptr;
  int64_t size = l.len(tr), k = a.size() ? sequence_index(tr, a[0], nullptr) : 1;
  if (!size) return tr.none();
  l.change(tr);
  k = ((k % size) + size) % size;
  std::rotate(l.elements.begin(), l.elements.end() - k, l.elements.end());
  return tr.none();
}

constexpr Method<ListVariable> kMethods[] = {
    {"append", 1, 1, append},
    {"extend", 1, 1, extend},
    {"__iadd__", 1, 1, add_in_place},
    {"__imul__", 1, 1, repeat_in_place},
    {"__init__", 0, 1, init},
    {"insert", 2, 2, insert},
    {"pop", 0, 1, pop},
    {"remove", 1, 1, remove},
    {"clear", 0, 0, clear},
    {"reverse", 0, 0, reverse},
    {"sort", 0, 0, sort},
    {"copy", 0, 0, copy},
    {"__copy__", 0, 0, copy},
    {"__setitem__", 2, 2, set_item},
    {"__delitem__", 1, 1, delete_item},
    {"appendleft", 1, 1, append_left},
    {"popleft", 0, 0, pop_left},
    {"extendleft", 1, 1, extend_left},
    {"rotate", 0, 1, rotate},
};

}  // namespace

Variable* ListVariable::call_method(Translator& tr, const char* name, Args& args) {
  if (Variable* v = run_method<ListVariable>(kMethods, tr, *this, name, args)) return v;
  return shared_method(tr, name, args);
}

}  // namespace braze::capture
