#include "bind/options.h"

#include <string>

namespace braze::bind {

namespace {

bool take(PyObject* v, bool& out) {
  if (!PyBool_Check(v)) return false;
  out = v == Py_True;
  return true;
}
bool take(PyObject* v, int64_t& out) {
  if (!PyLong_CheckExact(v)) return false;
  out = PyLong_AsLongLong(v);
  return !PyErr_Occurred();
}
[[maybe_unused]] bool take(PyObject* v, std::string& out) {
  if (!PyUnicode_Check(v)) return false;
  const char* c = PyUnicode_AsUTF8(v);
  out = c ? c : "";
  return c != nullptr;
}

const char* type_name(const bool*) { return "a bool"; }
const char* type_name(const int64_t*) { return "an int"; }
[[maybe_unused]] const char* type_name(const std::string*) { return "a str"; }

}  // namespace

std::optional<Options> options_from(PyObject* dict) {
  Options o;
  if (!dict || dict == Py_None) return o;
  if (!PyDict_Check(dict)) {
    PyErr_SetString(PyExc_TypeError, "options: a dict is expected");
    return std::nullopt;
  }
  std::string accepted;
#define BRAZE_OPTION(type, name, init, text) accepted += std::string(accepted.empty() ? "" : ", ") + #name;
#include "base/options.def"
#undef BRAZE_OPTION
  PyObject *key, *value;
  Py_ssize_t pos = 0;
  while (PyDict_Next(dict, &pos, &key, &value)) {
    const char* k = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : nullptr;
    std::string name = k ? k : "?";
    bool known = false;
#define BRAZE_OPTION(type, field, init, text)                                                                    \
  if (name == #field) {                                                                                          \
    known = true;                                                                                                \
    if (!take(value, o.field)) {                                                                                 \
      PyErr_Clear();                                                                                             \
      PyErr_Format(PyExc_TypeError, "option '%s' takes %s, not %R", #field, type_name(&o.field), value);         \
      return std::nullopt;                                                                                       \
    }                                                                                                            \
  }
#include "base/options.def"
#undef BRAZE_OPTION
    if (!known) {
      PyErr_Format(PyExc_ValueError, "no option '%s'; accepted: %s", name.c_str(), accepted.c_str());
      return std::nullopt;
    }
  }
  return o;
}

}  // namespace braze::bind
