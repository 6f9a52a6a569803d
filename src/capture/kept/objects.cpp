#include "capture/kept/objects.h"

#include <algorithm>

#include "capture/code/bytecode.h"
#include "capture/cpython/dict.h"
#include "capture/cpython/imported.h"
#include "capture/eval/capture.h"
#include "capture/eval/library_objects.h"
#include "capture/guards/guard_eval.h"

namespace braze::capture {

// ---- telling ----

namespace {

enum class Value : uint8_t {
  None,
  True,
  False,
  Ellipsis,
  NotImplemented,
  Int,
  Float,
  Complex,
  Text,
  Bytes,
  Tuple,
  Size,
  Slice,
  Range,
  Device
};

PyObject* singleton(Value v) {
  switch (v) {
    case Value::None: return Py_None;
    case Value::True: return Py_True;
    case Value::False: return Py_False;
    case Value::Ellipsis: return Py_Ellipsis;
    case Value::NotImplemented: return Py_NotImplemented;
    default: return nullptr;
  }
}

void kind(ByteWriter& w, Value v) { w.number(static_cast<uint64_t>(v)); }

}  // namespace

bool ObjectTable::by_value(PyObject* o, Record& r) {
  ByteWriter w;
  bool known = true;
  for (Value v : {Value::None, Value::True, Value::False, Value::Ellipsis, Value::NotImplemented})
    if (o == singleton(v)) return kind(w, v), r.value = w.take(), true;
  if (PyLong_CheckExact(o)) {
    kind(w, Value::Int);
    Ref s = Ref::steal(PyNumber_ToBase(o, 16));
    w.text(text_of(s.get()));
  } else if (PyFloat_CheckExact(o)) {
    kind(w, Value::Float), w.real(PyFloat_AS_DOUBLE(o));
  } else if (PyComplex_CheckExact(o)) {
    Py_complex c = PyComplex_AsCComplex(o);
    kind(w, Value::Complex), w.real(c.real), w.real(c.imag);
  } else if (PyUnicode_CheckExact(o)) {
    Ref bytes = Ref::steal(PyUnicode_AsEncodedString(o, "utf-8", "surrogatepass"));
    if (!bytes) return PyErr_Clear(), false;
    kind(w, Value::Text);
    w.text({PyBytes_AS_STRING(bytes.get()), static_cast<size_t>(PyBytes_GET_SIZE(bytes.get()))});
  } else if (PyBytes_CheckExact(o)) {
    kind(w, Value::Bytes);
    w.text({PyBytes_AS_STRING(o), static_cast<size_t>(PyBytes_GET_SIZE(o))});
  } else if (PyTuple_CheckExact(o) || Py_TYPE(o) == library().size) {
    kind(w, PyTuple_CheckExact(o) ? Value::Tuple : Value::Size);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) r.parts.push_back(number(PyTuple_GET_ITEM(o, i)));
  } else if (PySlice_Check(o)) {
    kind(w, Value::Slice);
    auto* s = reinterpret_cast<PySliceObject*>(o);
    r.parts = {number(s->start), number(s->stop), number(s->step)};
  } else if (PyRange_Check(o)) {
    kind(w, Value::Range);
    for (const char* field : {"start", "stop", "step"}) {
      Ref v = Ref::steal(PyObject_GetAttr(o, Ref::steal(PyUnicode_FromString(field)).get()));
      Record part;
      by_value(v.get(), part);
      w.text(part.value);
    }
  } else if (Py_TYPE(o) == library().device) {
    kind(w, Value::Device);
    Ref s = Ref::steal(PyObject_Str(o));
    w.text(text_of(s.get()));
  } else {
    known = false;
  }
  r.value = w.take();
  return known;
}

ObjectTable::Record ObjectTable::record(PyObject* o) {
  Record r;
  const char* in_frame = o == frame_.globals                                       ? "globals"
                         : o == frame_.builtins                                    ? "builtins"
                         : o == reinterpret_cast<PyObject*>(frame_.bytecode->code) ? "code"
                         : o == frame_.function && frame_.function                 ? "function"
                         : o == PyImport_GetModuleDict()                           ? "modules"
                                                                                   : nullptr;
  if (in_frame) {
    r.how = Found::InFrame;
    r.value = in_frame;
    if (PyCode_Check(o))
      for (PyObject* inner : inner_codes(o)) r.parts.push_back(number(inner));
    return r;
  }
  if (by_value(o, r)) {
    r.how = Found::ByValue;
    return r;
  }
  for (const auto& [signature, of] : signatures_) {
    if (signature.get() != o) continue;
    const bool method = PyMethod_Check(of.get());
    r.how = Found::Signature;
    r.value = method ? "method" : "";
    r.parts = {number(method ? PyMethod_GET_FUNCTION(of.get()) : of.get())};
    return r;
  }
  auto looks = looks_of(o);
  if (!looks) throw NotKept{std::string("an object of class ") + Py_TYPE(o)->tp_name};
  r.looks = std::move(looks->text);
  r.value = name_of(o);
  r.how = r.value.empty() ? Found::ByLooks : Found::ByName;
  for (PyObject* part : looks->parts) r.parts.push_back(part ? number(part) : 0);
  return r;
}

uint32_t ObjectTable::number(PyObject* o) {
  if (!o) return 0;
  if (auto known = numbers_.find(o); known != numbers_.end()) return known->second;
  // Known before its parts are: a class may be its own.
  records_.emplace_back();
  objects_.push_back(o);
  const auto n = static_cast<uint32_t>(records_.size());
  numbers_[o] = n;
  Record r = record(o);
  records_[n - 1] = std::move(r);
  return n;
}

void ObjectTable::is_led_to(PyObject* o) {
  if (!o) return;
  Record& r = records_[number(o) - 1];
  if (std::exchange(r.led_to, true)) return;
  if (r.how == Found::ByValue) return;
  const std::vector<uint32_t> parts = r.parts;
  for (uint32_t part : parts)
    if (part) is_led_to(objects_[part - 1]);
}

void ObjectTable::check() {
  std::unordered_map<PyObject*, uint32_t> class_dicts;
  for (size_t i = 0; i < objects_.size(); ++i)
    if (PyType_Check(objects_[i]))
      class_dicts[cpython::type_dict(reinterpret_cast<PyTypeObject*>(objects_[i]))] = static_cast<uint32_t>(i + 1);
  for (size_t i = 0; i < records_.size(); ++i) {
    Record& r = records_[i];
    if (r.how != Found::ByLooks || r.led_to) continue;
    auto of = class_dicts.find(objects_[i]);
    if (of == class_dicts.end()) throw NotKept{printable(r.looks) + ", which nothing leads to"};
    r.how = Found::OfClass;
    r.parts = {of->second};
  }
}

std::string ObjectTable::take() const {
  ByteWriter w;
  w.number(records_.size());
  for (const Record& r : records_) {
    w.number(static_cast<uint64_t>(r.how));
    w.text(r.value);
    w.text(r.looks);
    w.number(r.parts.size());
    for (uint32_t p : r.parts) w.number(p);
  }
  return w.take();
}

// ---- finding ----

FoundObjects::FoundObjects(const std::string& table, const FrameView& frame) {
  ByteReader in(table);
  records_.resize(in.count());
  objects_.resize(records_.size());
  for (Record& r : records_) {
    r.how = static_cast<Found>(in.number(static_cast<uint64_t>(Found::ByLooks)));
    r.value = in.text();
    r.looks = in.text();
    r.parts.resize(in.count());
    for (uint32_t& p : r.parts) p = static_cast<uint32_t>(in.number(records_.size()));
  }
  if (!in.at_end()) damaged("more objects than were written");
  for (size_t i = 0; i < records_.size(); ++i) {
    const Record& r = records_[i];
    if (r.how != Found::InFrame) continue;
    PyObject* o = r.value == "globals"    ? frame.globals
                  : r.value == "builtins" ? frame.builtins
                  : r.value == "modules"  ? PyImport_GetModuleDict()
                  : r.value == "code"     ? reinterpret_cast<PyObject*>(frame.bytecode->code)
                                          : frame.function;
    objects_[i] = Ref::borrow(o);
    if (!o) continue;
    numbers_[o] = static_cast<uint32_t>(i + 1);
    if (!PyCode_Check(o)) continue;
    std::vector<PyObject*> inner = inner_codes(o);
    if (inner.size() != r.parts.size()) damaged("a code object's functions");
    for (size_t k = 0; k < inner.size(); ++k) differs_ |= !bind(r.parts[k], inner[k]);
  }
  make_values();
  find_names();
}

void FoundObjects::find_names() {
  for (size_t i = 0; i < records_.size(); ++i)
    if (records_[i].how == Found::ByName && !objects_[i])
      if (PyObject* o = at_name(records_[i].value)) bind(static_cast<uint32_t>(i + 1), o);
}

void FoundObjects::make_values() {
  // What they are made of mostly comes after them.
  for (bool more = true; std::exchange(more, false);)
    for (size_t i = records_.size(); i-- > 0;) {
      const Record& r = records_[i];
      if (objects_[i]) continue;
      if (r.how == Found::ByValue) objects_[i] = make_value(r);
      if (r.how == Found::Signature) objects_[i] = make_signature(r);
      if (PyObject* cls = r.how == Found::OfClass && r.parts.size() == 1 ? get(r.parts[0]) : nullptr;
          cls && PyType_Check(cls)) {
        PyObject* dict = cpython::type_dict(reinterpret_cast<PyTypeObject*>(cls));
        objects_[i] = Ref::borrow(dict);
        numbers_[dict] = static_cast<uint32_t>(i + 1);
      }
      more |= static_cast<bool>(objects_[i]);
    }
}

std::string FoundObjects::print(uint32_t number) const {
  const Record& r = records_.at(number - 1);
  return printable(r.value.empty() ? r.looks : r.value);
}

PyObject* FoundObjects::get(uint32_t number) const { return number ? objects_.at(number - 1).get() : nullptr; }

namespace {

Ref plain_value(ByteReader& in) {
  const auto v = static_cast<Value>(in.number(static_cast<uint64_t>(Value::Device)));
  if (PyObject* one = singleton(v)) return Ref::borrow(one);
  switch (v) {
    case Value::Int: return Ref::steal(PyLong_FromString(in.text().c_str(), nullptr, 16));
    case Value::Float: return Ref::steal(PyFloat_FromDouble(in.real()));
    case Value::Complex: {
      double re = in.real();
      return Ref::steal(PyComplex_FromDoubles(re, in.real()));
    }
    case Value::Text: {
      std::string s = in.text();
      PyObject* text = PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "surrogatepass");
      if (text) PyUnicode_InternInPlace(&text);
      return Ref::steal(text);
    }
    case Value::Bytes: {
      std::string s = in.text();
      return Ref::steal(PyBytes_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size())));
    }
    case Value::Device: {
      std::string s = in.text();
      return Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(library().device), "s", s.c_str()));
    }
    default: return {};
  }
}

}  // namespace

Ref FoundObjects::make_value(const Record& r) const {
  ByteReader in(r.value);
  const auto v = static_cast<Value>(in.number(static_cast<uint64_t>(Value::Device)));
  Ref out;
  if (v == Value::Tuple || v == Value::Size) {
    Ref tuple = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(r.parts.size())));
    for (size_t i = 0; i < r.parts.size(); ++i) {
      PyObject* item = get(r.parts[i]);
      if (!item) return {};  // it has one that is found later
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), Py_NewRef(item));
    }
    if (v == Value::Tuple) return tuple;
    out = Ref::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(library().size), tuple.get()));
  } else if (v == Value::Slice) {
    if (r.parts.size() != 3) damaged("a slice");
    PyObject* p[3];
    for (size_t i = 0; i < 3; ++i)
      if (!(p[i] = get(r.parts[i]))) return {};
    out = Ref::steal(PySlice_New(p[0], p[1], p[2]));
  } else if (v == Value::Range) {
    Ref p[3];
    for (Ref& part : p) {
      std::string bytes = in.text();
      ByteReader one(bytes);
      part = plain_value(one);
    }
    out = Ref::steal(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PyRange_Type), p[0].get(), p[1].get(),
                                                  p[2].get(), nullptr));
  } else {
    ByteReader all(r.value);
    out = plain_value(all);
  }
  if (!out) {
    PyErr_Clear();
    damaged("a value");
  }
  return out;
}

Ref FoundObjects::make_signature(const Record& r) const {
  static PyObject* const signature = imported("inspect", "signature");
  PyObject* function = r.parts.size() == 1 ? get(r.parts[0]) : nullptr;
  if (!function) return {};
  Ref of = r.value.empty() ? Ref::borrow(function) : Ref::steal(PyMethod_New(function, Py_Ellipsis));
  Ref made = Ref::steal(of ? PyObject_CallOneArg(signature, of.get()) : nullptr);
  if (!made) PyErr_Clear();
  return made;
}

bool FoundObjects::bind(uint32_t number, PyObject* object) {
  if (number == 0) return object == nullptr;
  if (!object) return false;
  const Record& r = records_.at(number - 1);
  Ref& known = objects_[number - 1];
  if (r.how == Found::ByValue) {
    // Where its identity matters, it is that of the value that is there.
    if (!known || !equal_constants(known.get(), object)) return false;
    known = Ref::borrow(object);
    return true;
  }
  if (known) return known.get() == object;
  if (r.how != Found::ByName && r.how != Found::ByLooks) return false;
  if (auto other = numbers_.find(object); other != numbers_.end()) return false;
  auto looks = looks_of(object);
  if (!looks || looks->text != r.looks || looks->parts.size() != r.parts.size()) return false;
  known = Ref::borrow(object);
  numbers_[object] = number;
  for (size_t i = 0; i < r.parts.size(); ++i)
    if (!bind(r.parts[i], looks->parts[i])) return differs_ = true, false;
  return true;
}

}  // namespace braze::capture
