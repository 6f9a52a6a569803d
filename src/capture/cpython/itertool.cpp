// The structures are private to CPython's sources; 3.11 to 3.14 share what is named here, but for cycle().
#include "capture/cpython/itertool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "capture/cpython/fast_function.h"
#include "capture/cpython/generator.h"
#include "capture/cpython/imported.h"
#include "capture/cpython/ref.h"

namespace braze::capture::cpython {
namespace {

struct AccumulateFields {
  PyObject_HEAD PyObject *total, *it, *function, *initial;
};
struct PairFields {  // of chain, compress, filterfalse, pairwise and starmap
  PyObject_HEAD PyObject *first, *second;
};
struct WhileFields {  // of takewhile and dropwhile
  PyObject_HEAD PyObject *function, *it;
  long past;
};
struct CountFields {
  PyObject_HEAD Py_ssize_t number;  // PY_SSIZE_T_MAX: long_number, which may be nullptr for that
  PyObject *long_number, *step;
};
struct CycleFields {
  PyObject_HEAD PyObject *it, *saved;
  Py_ssize_t index;  // from 3.14 on -1 in the first pass
#if PY_VERSION_HEX < 0x030E0000
  int first_pass;
#endif
};
#if PY_VERSION_HEX < 0x030E0000
constexpr size_t kFirstPass = offsetof(CycleFields, first_pass);
#else
constexpr size_t kFirstPass = 0;  // it always saves what it gives in the first pass
#endif
struct IsliceFields {
  PyObject_HEAD PyObject* it;
  Py_ssize_t next, stop, step, count;
};
struct RepeatFields {
  PyObject_HEAD PyObject* element;
  Py_ssize_t count;
};
struct ZipLongestFields {
  PyObject_HEAD Py_ssize_t size, active;
  PyObject *its, *result, *fill;
};

enum class Type : uint8_t { Object, Size, Long, CycleIndex, CycleFirstPass };
struct Place {
  size_t offset;
  Type type;
};
constexpr Place object_at(size_t offset) { return {offset, Type::Object}; }

using enum ItertoolField;
struct Layout {
  ItertoolRow row;
  std::vector<Place> places;
};

const Layout& layout(Itertool tool) {
  static const Place first = object_at(offsetof(PairFields, first)), second = object_at(offsetof(PairFields, second));
  static const std::vector<Place> until = {object_at(offsetof(WhileFields, function)),
                                           object_at(offsetof(WhileFields, it)),
                                           {offsetof(WhileFields, past), Type::Long}};
  static const Layout layouts[] = {
      {{"accumulate", {Empty, Object, Optional, Object}},
       {object_at(offsetof(AccumulateFields, total)), object_at(offsetof(AccumulateFields, it)),
        object_at(offsetof(AccumulateFields, function)), object_at(offsetof(AccumulateFields, initial))}},
      {{"chain", {Object, Empty}}, {first, second}},
      {{"compress", {Object, Object}}, {first, second}},
      {{"count", {Object, Object}}, {}},
      {{"cycle", {Object, Object, Number, Number}},
       {object_at(offsetof(CycleFields, it)),
        object_at(offsetof(CycleFields, saved)),
        {offsetof(CycleFields, index), Type::CycleIndex},
        {kFirstPass, Type::CycleFirstPass}}},
      {{"dropwhile", {Object, Object, Number}}, until},
      {{"filterfalse", {Object, Object}}, {first, second}},
      {{"islice", {Object, Number, Number, Number, Number}},
       {object_at(offsetof(IsliceFields, it)),
        {offsetof(IsliceFields, next), Type::Size},
        {offsetof(IsliceFields, stop), Type::Size},
        {offsetof(IsliceFields, step), Type::Size},
        {offsetof(IsliceFields, count), Type::Size}}},
      {{"pairwise", {Object, Empty}}, {first, second}},
      {{"repeat", {Object, Number}},
       {object_at(offsetof(RepeatFields, element)), {offsetof(RepeatFields, count), Type::Size}}},
      {{"starmap", {Object, Object}}, {first, second}},
      {{"takewhile", {Object, Object, Number}}, until},
      {{"zip_longest", {Number, Object, Objects}},
       {{offsetof(ZipLongestFields, active), Type::Size}, object_at(offsetof(ZipLongestFields, fill))}},
  };
  static_assert(std::size(layouts) == static_cast<size_t>(Itertool::None));
  return layouts[static_cast<size_t>(tool)];
}

template <class T>
T& field(PyObject* o, size_t offset) {
  return *reinterpret_cast<T*>(reinterpret_cast<char*>(o) + offset);
}

PyObject* or_empty(PyObject* o) { return Py_NewRef(o ? o : empty_slot()); }
PyObject* or_null(PyObject* o) { return o == empty_slot() ? nullptr : Py_NewRef(o); }

PyObject* read(PyObject* it, Place p) {
  switch (p.type) {
    case Type::Object: return or_empty(field<PyObject*>(it, p.offset));
    case Type::Size: return PyLong_FromSsize_t(field<Py_ssize_t>(it, p.offset));
    case Type::Long: return PyLong_FromLong(field<long>(it, p.offset));
    case Type::CycleIndex: return PyLong_FromSsize_t(std::max<Py_ssize_t>(field<Py_ssize_t>(it, p.offset), 0));
    case Type::CycleFirstPass: return PyLong_FromLong(p.offset ? field<int>(it, p.offset) : 0);
  }
  return nullptr;
}

// What the field held is put into `before`.
void write(PyObject* it, Place p, PyObject* value, std::vector<Ref>& before) {
  switch (p.type) {
    case Type::Object:
      before.push_back(Ref::steal(std::exchange(field<PyObject*>(it, p.offset), or_null(value))));
      break;
    case Type::Size: field<Py_ssize_t>(it, p.offset) = PyLong_AsSsize_t(value); break;
    case Type::Long: field<long>(it, p.offset) = PyLong_AsLong(value); break;
    case Type::CycleIndex:
      field<Py_ssize_t>(it, p.offset) =
          kFirstPass || !reinterpret_cast<CycleFields*>(it)->it ? PyLong_AsSsize_t(value) : -1;
      break;
    case Type::CycleFirstPass:
      if (p.offset) field<int>(it, p.offset) = static_cast<int>(PyLong_AsLong(value));
      break;
  }
}

bool is_one(PyObject* o) { return PyLong_CheckExact(o) && PyLong_AsDouble(o) == 1.0; }

// As the class does, machine words where they do.
void set_count(PyObject* it, PyObject* number, PyObject* step, std::vector<Ref>& before) {
  auto& f = *reinterpret_cast<CountFields*>(it);
  int overflow = 1;
  long long word = is_one(step) && PyLong_CheckExact(number) ? PyLong_AsLongLongAndOverflow(number, &overflow) : 0;
  bool fits = !overflow && word < PY_SSIZE_T_MAX;
  f.number = fits ? static_cast<Py_ssize_t>(word) : PY_SSIZE_T_MAX;
  before.push_back(Ref::steal(std::exchange(f.long_number, fits ? nullptr : Py_NewRef(number))));
  before.push_back(Ref::steal(std::exchange(f.step, Py_NewRef(step))));
}

void set_fields(PyObject* it, PyObject* const* fields, size_t n, std::vector<Ref>& before) {
  Itertool tool = itertool_of(Py_TYPE(it));
  if (tool == Itertool::Count) return set_count(it, fields[0], fields[1], before);
  const std::vector<Place>& places = layout(tool).places;
  for (size_t i = 0; i < places.size(); ++i) write(it, places[i], fields[i], before);
  if (tool != Itertool::ZipLongest) return;
  PyObject* its = reinterpret_cast<ZipLongestFields*>(it)->its;
  for (size_t i = places.size(); i < n; ++i) {
    auto at = static_cast<Py_ssize_t>(i - places.size());
    before.push_back(Ref::steal(PyTuple_GET_ITEM(its, at)));
    PyTuple_SET_ITEM(its, at, or_null(fields[i]));
  }
}

// What was held ends when all fields are as they are to be: that may run code.
PyObject* set(PyObject*, PyObject* const* args, Py_ssize_t n) {
  std::vector<Ref> before;
  set_fields(args[0], args + 1, static_cast<size_t>(n) - 1, before);
  Py_RETURN_NONE;
}

PyObject* new_of(Itertool tool, size_t fields) {
  auto* type = reinterpret_cast<PyObject*>(itertool_type(tool));
  Ref empty = Ref::steal(PyTuple_New(0)), zero = Ref::steal(PyLong_FromLong(0));
  switch (tool) {
    case Itertool::Chain:
    case Itertool::Count: return PyObject_CallNoArgs(type);
    case Itertool::Compress: return PyObject_CallFunctionObjArgs(type, empty.get(), empty.get(), nullptr);
    case Itertool::Islice: return PyObject_CallFunctionObjArgs(type, empty.get(), zero.get(), nullptr);
    case Itertool::DropWhile:
    case Itertool::FilterFalse:
    case Itertool::StarMap:
    case Itertool::TakeWhile: return PyObject_CallFunctionObjArgs(type, Py_None, empty.get(), nullptr);
    case Itertool::ZipLongest: {
      auto n = static_cast<Py_ssize_t>(fields - layout(tool).places.size());
      Ref args = Ref::steal(PyTuple_New(n));
      for (Py_ssize_t i = 0; args && i < n; ++i) PyTuple_SET_ITEM(args.get(), i, Py_NewRef(empty.get()));
      return args ? PyObject_CallObject(type, args.get()) : nullptr;
    }
    default: return PyObject_CallOneArg(type, empty.get());
  }
}

PyObject* made_itertool(PyObject*, PyObject* const* args, Py_ssize_t n) {
  size_t fields = static_cast<size_t>(n) - 1;
  Ref it = Ref::steal(new_of(itertool_of(reinterpret_cast<PyTypeObject*>(args[0])), fields));
  if (!it) return nullptr;
  std::vector<Ref> before;
  set_fields(it.get(), args + 1, fields, before);
  return it.release();
}

PyObject* content_of_count(PyObject* it) {
  auto& f = *reinterpret_cast<CountFields*>(it);
  Ref number =
      Ref::steal(f.number == PY_SSIZE_T_MAX && f.long_number ? Py_NewRef(f.long_number) : PyLong_FromSsize_t(f.number));
  if (!number) return nullptr;
  return f.number == PY_SSIZE_T_MAX ? PyTuple_Pack(2, number.get(), f.step) : PyTuple_Pack(1, number.get());
}

}  // namespace

const ItertoolRow& itertool_row(Itertool tool) { return layout(tool).row; }

ItertoolField itertool_field(Itertool tool, size_t index) {
  const auto& fields = itertool_row(tool).fields;
  return index < fields.size() ? fields[index] : fields.back();
}

PyTypeObject* itertool_type(Itertool tool) {
  static const auto types = [] {
    std::vector<PyTypeObject*> out;
    for (int i = 0; i < static_cast<int>(Itertool::None); ++i)
      out.push_back(reinterpret_cast<PyTypeObject*>(imported("itertools", layout(static_cast<Itertool>(i)).row.name)));
    return out;
  }();
  return types[static_cast<size_t>(tool)];
}

Itertool itertool_of(PyTypeObject* type) {
  for (int i = 0; i < static_cast<int>(Itertool::None); ++i)
    if (itertool_type(static_cast<Itertool>(i)) == type) return static_cast<Itertool>(i);
  return Itertool::None;
}

PyObject* itertool_content(PyObject* it) {
  Itertool tool = itertool_of(Py_TYPE(it));
  if (tool == Itertool::Count) return content_of_count(it);
  const std::vector<Place>& places = layout(tool).places;
  PyObject* rest = tool == Itertool::ZipLongest ? reinterpret_cast<ZipLongestFields*>(it)->its : nullptr;
  Py_ssize_t n = static_cast<Py_ssize_t>(places.size()), more = rest ? PyTuple_GET_SIZE(rest) : 0;
  Ref out = Ref::steal(PyTuple_New(n + more));
  for (Py_ssize_t i = 0; out && i < n; ++i) {
    PyObject* value = read(it, places[static_cast<size_t>(i)]);
    if (!value) return nullptr;
    PyTuple_SET_ITEM(out.get(), i, value);
  }
  for (Py_ssize_t i = 0; out && i < more; ++i) PyTuple_SET_ITEM(out.get(), n + i, or_empty(PyTuple_GET_ITEM(rest, i)));
  return out.release();
}

PyObject* itertool_set() {
  static PyObject* const function = fast_function("set", set);
  return function;
}

PyObject* itertool_made() {
  static PyObject* const function = fast_function("made", made_itertool);
  return function;
}

}  // namespace braze::capture::cpython
