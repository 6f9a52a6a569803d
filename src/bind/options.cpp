#include "bind/options.h"

#include <c10/util/Float8_e4m3fn.h>

#include <cmath>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/strict.h"
#include "launch/launch.h"

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
bool take(PyObject* v, double& out) {
  if (!PyFloat_CheckExact(v) && !PyLong_CheckExact(v)) return false;
  out = PyFloat_AsDouble(v);
  return !PyErr_Occurred() && out >= 0 && out <= 1;
}
template <class Choice>
  requires std::is_enum_v<Choice>
bool take(PyObject* v, Choice& out) {
  if (!PyUnicode_Check(v)) return false;
  auto names = names_of(out);
  for (size_t i = 0; i < names.size(); ++i)
    if (PyUnicode_CompareWithASCIIString(v, names[i].data()) == 0) {
      out = static_cast<Choice>(i);
      return true;
    }
  return false;
}

std::string accepted_by(bool) { return "a bool"; }
std::string accepted_by(int64_t) { return "an int"; }
std::string accepted_by(double) { return "a number from 0 to 1"; }
template <class Choice>
  requires std::is_enum_v<Choice>
std::string accepted_by(Choice c) {
  std::string all;
  for (std::string_view name : names_of(c)) all += (all.empty() ? "'" : " or '") + std::string(name) + "'";
  return all;
}

}  // namespace

Options default_options() {
  Options o;
  o.float8_saturates = !std::isnan(static_cast<float>(c10::Float8_e4m3fn(1e9F)));
  o.packs_weights = launch::packs_weights();
  return o;
}

std::optional<Options> options_from(PyObject* dict) {
  Options o = default_options();
  const bool no_caches = is_set("BRAZE_FORCE_DISABLE_CACHES");  // whatever the program asks for
  if (no_caches) o.disk_cache = false;
  if (!dict || dict == Py_None) return o;
  if (!PyDict_Check(dict)) {
    PyErr_Format(PyExc_TypeError, "options: a dict is expected, not %R", dict);
    return std::nullopt;
  }
  std::string accepted;
#define BRAZE_OPTION(type, name, init, text) accepted += std::string(accepted.empty() ? "" : ", ") + #name;
#include "base/options.def"
#undef BRAZE_OPTION
  PyObject *key, *value;
  Py_ssize_t pos = 0;
  while (PyDict_Next(dict, &pos, &key, &value)) {
    const char* name_of_key = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : nullptr;
    if (!name_of_key) {
      PyErr_Clear();
      PyErr_Format(PyExc_TypeError, "options: names are expected, not %R; accepted: %s", key, accepted.c_str());
      return std::nullopt;
    }
    const std::string name = name_of_key;
    bool known = false;
#define BRAZE_OPTION(type, field, init, text)                                                                     \
  if (name == #field) {                                                                                           \
    known = true;                                                                                                 \
    if (!take(value, o.field)) {                                                                                  \
      PyErr_Clear();                                                                                              \
      PyErr_Format(PyExc_TypeError, "option '%s' takes %s, not %R", #field, accepted_by(o.field).c_str(), value); \
      return std::nullopt;                                                                                        \
    }                                                                                                             \
  }
#include "base/options.def"
#undef BRAZE_OPTION
    if (!known) {
      PyErr_Format(PyExc_ValueError, "no option '%s'; accepted: %s", name.c_str(), accepted.c_str());
      return std::nullopt;
    }
  }
  if (no_caches) o.disk_cache = false;
  return o;
}

}  // namespace braze::bind
