#include "capture/guards/dynamic.h"

#include <algorithm>
#include <bit>

#include "capture/cpython/ref.h"
#include "launch/tensor_spec.h"
#include "trace/pytorch/names.h"

namespace braze::capture {

namespace {

// Sizes and products of a few sizes stay far inside of 64 bits.
constexpr int64_t kMostSize = int64_t{1} << 40;
constexpr int64_t kMostInteger = (int64_t{1} << 31) - 1;  // of open integers: their products stay inside 64 bits

PyObject* attributes(PyObject* tensor) {
  PyObject** dict = _PyObject_GetDictPtr(tensor);
  return dict && *dict && PyDict_GET_SIZE(*dict) ? *dict : nullptr;
}

std::vector<int> indices(PyObject* dict, PyObject* key) {
  std::vector<int> out;
  PyObject* set = PyDict_GetItem(dict, key);
  if (!set || !PyAnySet_Check(set)) return out;
  Ref it = Ref::steal(PyObject_GetIter(set));
  while (Ref e = Ref::steal(PyIter_Next(it.get())))
    if (PyLong_Check(e.get())) out.push_back(static_cast<int>(PyLong_AsLong(e.get())));
  PyErr_Clear();
  std::sort(out.begin(), out.end());
  return out;
}

int64_t number(PyObject* object, const char* attribute, int64_t otherwise) {
  Ref v = Ref::steal(PyObject_GetAttrString(object, attribute));
  if (!v) PyErr_Clear();
  return v && PyLong_Check(v.get()) ? PyLong_AsLongLong(v.get()) : otherwise;
}

}  // namespace

std::vector<DimMark> marks_of(PyObject* tensor) {
  std::vector<DimMark> out;
  PyObject* dict = attributes(tensor);
  if (!dict) return out;
  for (int d : indices(dict, pytorch::interned(pytorch::Attribute::unbacked_indices)))
    out.push_back({.dim = d, .dynamic = true, .unbacked = true});
  for (int d : indices(dict, pytorch::interned(pytorch::Attribute::dynamic_indices)))
    if (std::none_of(out.begin(), out.end(), [&](const DimMark& m) { return m.dim == d; })) out.push_back({d, true});
  for (int d : indices(dict, pytorch::interned(pytorch::Attribute::weak_dynamic_indices)))
    if (std::none_of(out.begin(), out.end(), [&](const DimMark& m) { return m.dim == d; }))
      out.push_back({d, true, false, true});
  for (int d : indices(dict, pytorch::interned(pytorch::Attribute::static_indices))) out.push_back({d, false});
  if (PyObject* ranges = PyDict_GetItem(dict, pytorch::interned(pytorch::Attribute::dynamic_range));
      ranges && PyAnySet_Check(ranges)) {
    Ref it = Ref::steal(PyObject_GetIter(ranges));
    while (Ref e = Ref::steal(PyIter_Next(it.get())))
      for (DimMark& m : out) {
        if (!m.dynamic || number(e.get(), "dim", -1) != m.dim) continue;
        Ref lo = Ref::steal(PyObject_GetAttrString(e.get(), "min")),
            hi = Ref::steal(PyObject_GetAttrString(e.get(), "max"));
        PyErr_Clear();
        m.bounded = (lo && lo.get() != Py_None) || (hi && hi.get() != Py_None);
        m.min = number(e.get(), "min", 0);
        m.max = number(e.get(), "max", kMostSize);
      }
    PyErr_Clear();
  }
  return out;
}

// Of few attributes all are looked at: that is faster than to look two names up.
bool may_be_dynamic(PyObject* attributes) {
  PyObject* dynamic = pytorch::interned(pytorch::Attribute::dynamic_indices);
  PyObject* unbacked = pytorch::interned(pytorch::Attribute::unbacked_indices);
  constexpr Py_ssize_t kFew = 2;
  bool told_by_address = PyDict_GET_SIZE(attributes) <= kFew;
  PyObject *key, *value;
  for (Py_ssize_t at = 0; told_by_address && PyDict_Next(attributes, &at, &key, &value);) {
    if (key == dynamic || key == unbacked) return true;
    told_by_address = PyUnicode_CheckExact(key) && PyUnicode_CHECK_INTERNED(key);
  }
  return !told_by_address && (PyDict_GetItem(attributes, dynamic) || PyDict_GetItem(attributes, unbacked));
}

bool marks_within(PyObject* tensor, const std::vector<trace::SymbolicDim>& symbolic) {
  PyObject* dict = attributes(tensor);
  if (!dict || !may_be_dynamic(dict)) return true;
  for (const DimMark& m : marks_of(tensor)) {
    if (!m.dynamic || m.weak) continue;
    // Outside of its declared range a size is like one without a mark.
    std::vector<int64_t> geometry = launch::geometry(tensor);
    if (m.dim < 0 || static_cast<size_t>(m.dim) >= geometry.size() / 2) continue;
    int64_t size = geometry[static_cast<size_t>(m.dim)];
    if (m.bounded && (size < m.min || size > m.max)) continue;
    if (std::none_of(symbolic.begin(), symbolic.end(), [&](const trace::SymbolicDim& s) { return s.dim == m.dim; }))
      return false;
  }
  return true;
}

// Sources that a program names once and never again (keys of a dict that come and go) do not add up.
constexpr size_t kMostSources = 4096;

SeenSizes::Seen& SeenSizes::note(const std::string& key, const std::vector<int64_t>& values) {
  if (seen_.size() >= kMostSources && !seen_.count(key)) seen_.clear();
  Seen& s = seen_[key];
  if (s.now.size() != values.size()) {
    s = {values, std::vector<int64_t>(values.size(), -1), std::vector<char>(values.size(), 0)};
  } else if (s.now != values) {
    for (size_t i = 0; i < values.size(); ++i) s.varies[i] |= s.now[i] != values[i];
    s.before = std::exchange(s.now, values);
  }
  return s;
}

std::vector<trace::SymbolicDim> SeenSizes::tensor(const std::string& source, PyObject* tensor,
                                                  const std::vector<DimMark>& marks, Dynamic policy) {
  std::vector<trace::SymbolicDim> out;
  std::vector<int64_t> geometry = launch::geometry(tensor);
  const Seen& seen = note(source, geometry);
  size_t rank = geometry.size() / 2;
  bool sizes_open = false;
  // Without elements a tensor takes other ways through most operators: nothing of it stays open unless it was asked
  // for.
  if (std::find(geometry.begin(), geometry.begin() + static_cast<ptrdiff_t>(rank), 0) !=
      geometry.begin() + static_cast<ptrdiff_t>(rank))
    policy = Dynamic::Never;
  for (size_t d = 0; d < rank; ++d) {
    const DimMark* mark = nullptr;
    for (const DimMark& m : marks)
      if (m.dim == static_cast<int>(d)) mark = &m;
    int64_t size = geometry[d];
    if (mark && mark->dynamic && !(mark->weak && size < 2)) {
      sym::Range range{std::min<int64_t>(size, 1), kMostSize};
      if (mark->unbacked) {
        out.push_back({static_cast<int>(d), {0, kMostSize}, false, -1, true});
        sizes_open = true;
        continue;
      }
      if (mark->bounded) range = {std::max<int64_t>(mark->min, 0), std::min(mark->max, kMostSize)};
      if (size < range.lo || size > range.hi) continue;
      out.push_back({static_cast<int>(d), range, false, -1});
      sizes_open = true;
      continue;
    }
    if ((mark && !mark->dynamic) || policy == Dynamic::Never) continue;
    // Sizes 0 and 1 mean something (nothing to do, broadcast): each is compiled by itself.
    if (size < 2 || !(policy == Dynamic::Always || seen.varies[d])) continue;
    out.push_back({static_cast<int>(d), {1, kMostSize}, true, seen.before[d]});
    sizes_open = true;
  }
  if (policy == Dynamic::Never) return out;
  for (size_t d = 0; d < rank; ++d)
    if (seen.varies[rank + d] && geometry[rank + d] > 1 && (sizes_open || geometry[d] > 1))
      out.push_back({~static_cast<int>(d), {1, kMostSize}, false, -1});
  return out;
}

bool SeenSizes::integer(const std::string& source, int64_t value, bool anchored, Dynamic policy, sym::Range* range) {
  const Seen& seen = note(source, {value});
  bool open = policy != Dynamic::Never && (seen.varies[0] || (policy == Dynamic::Always && !anchored));
  if (!open || (value >= 0 && value < 2) || value > kMostInteger || value < -kMostInteger) return false;
  *range = value > 0 ? sym::Range{1, kMostInteger} : sym::Range{-kMostInteger, -1};
  return true;
}

bool SeenSizes::position(const std::string& source, int64_t at) {
  constexpr size_t kMostPositions = 8;
  if (positions_.size() >= kMostSources && !positions_.count(source)) positions_.clear();
  std::vector<int64_t>& known = positions_[source];
  if (std::find(known.begin(), known.end(), at) != known.end()) return true;
  if (known.size() == kMostPositions) return false;
  known.push_back(at);
  return true;
}

void SeenSizes::passes(const std::string& source) {
  if (passing_.size() >= kMostSources) passing_.clear();
  passing_.insert(source);
}

bool SeenSizes::is_passing(const Sources& sources, SourceId at, const void* object) {
  std::string source = sources.print(at);
  if (objects_.size() >= kMostSources && !objects_.count(source)) objects_.clear();
  const void*& latest = objects_[source];
  bool other = latest && latest != object;
  latest = object;
  if (passing_.empty()) return false;
  while (other && (at = sources[at].base).valid())
    if (passing_.count(sources.print(at))) passes(source), other = false;
  return passing_.count(source) != 0;
}

bool SeenSizes::number(const std::string& source, double value, Dynamic policy) {
  return note(source, {std::bit_cast<int64_t>(value)}).varies[0] && policy != Dynamic::Never;
}

}  // namespace braze::capture
