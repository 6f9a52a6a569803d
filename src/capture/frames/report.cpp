#include "capture/frames/report.h"

#include "capture/frames/stance.h"

#include "launch/warn_once.h"

namespace braze::capture {

namespace {

PyObject* g_unsupported = nullptr;

}  // namespace

void set_unsupported_exception(PyObject* type) { g_unsupported = type; }

void refuse(const BreakInfo& stop) {
  std::string why = breaks_are_errors() ? "error_on_graph_break(True)" : "fullgraph=True";
  std::string text = "this can't be compiled as one graph (" + why + ")\n" + explain_break(stop);
  PyErr_SetString(g_unsupported ? g_unsupported : PyExc_RuntimeError, text.c_str());
}

std::string explain_break(const BreakInfo& b) {
  std::string out = describe(b.line);
  std::string text = source_text(b.line);
  if (!text.empty()) out += "\n    " + text;
  out += "\n  " + std::string(summary(b.reason));
  if (!b.detail.empty()) out += ": " + b.detail;
  out += "\n  hint: " + std::string(remedy(b.reason));
  for (size_t i = b.stack.size(); i-- > 0;) out += "\n  called from " + describe(b.stack[i]);
  return out;
}

void say_uncompiled(const UserLine& at, const std::string& why) {
  launch::warn_once("braze: " + describe(at) + " runs uncompiled: " + why);
}

std::string describe_failure(const UserLine& at, const std::string& what, const std::string& dump) {
  return "braze: internal failure at " + describe(at) + ": " + what + "\n" + dump;
}

std::string take_exception() {
  PyObject *type, *value, *tb;
  PyErr_Fetch(&type, &value, &tb);
  PyErr_NormalizeException(&type, &value, &tb);
  Ref text = Ref::steal(value ? PyObject_Str(value) : nullptr);
  const char* c = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  std::string s = type ? reinterpret_cast<PyTypeObject*>(type)->tp_name : "?";
  if (c) s += std::string(": ") + c;
  PyErr_Clear();
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(tb);
  return s;
}

}  // namespace braze::capture
