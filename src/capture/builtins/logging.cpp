// Messages of the library's loggers: given when the entry runs, after its graph, where the code in this capture can
// neither see nor change what becomes of them.
#include <algorithm>
#include <string_view>

#include "capture/builtins/builtins.h"
#include "capture/builtins/messages.h"
#include "capture/cpython/imported.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

PyObject* of_logging(const char* name) { return imported("logging", name); }

std::string module_of(PyTypeObject* cls) {
  Ref module = Ref::steal(native::attr(Ground::conservative(), reinterpret_cast<PyObject*>(cls), "__module__"));
  const char* text = module && PyUnicode_Check(module.get()) ? PyUnicode_AsUTF8(module.get()) : nullptr;
  PyErr_Clear();
  return text ? text : "";
}

// Whether a file that is being captured has this name as a module: its code may know what its own handlers keep.
bool is_captured(Translator& tr, const std::string& module) {
  static PyObject* key = PyUnicode_InternFromString("__name__");
  for (Frame* f = tr.frame(); f; f = f->parent)
    if (PyObject* name = native::item(Ground::conservative(), f->globals, key);
        name && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, module.c_str()) == 0)
      return true;
  return false;
}

DictVariable* logging_settings(Translator& tr) {
  static PyObject* dict = of_logging("__dict__");
  return tr.force(tr.wrap(dict, tr.sources().constant(dict)))->as<DictVariable>();
}

// What decides where a message goes, from its logger up: their lists, handlers, filters and formats.
class Route {
 public:
  explicit Route(Translator& tr) : tr_(tr) { objects_.push_back(logging_settings(tr)->real.get()); }

  // Whether the message can wait. Guards what it looked at.
  bool can_wait(Variable* logger) {
    Variable* factory = logging_settings(tr_)->get(tr_, tr_.intern("_logRecordFactory"));
    if (!factory || tr_.force(factory)->as_constant() != of_logging("LogRecord")) return false;
    for (int depth = 0; depth < 32; ++depth) {
      logger = tr_.force(logger);
      if (is_none(logger)) return !is_changed();
      if (!takes_logger(logger)) return false;
      if (!tr_.truth(tr_.getattr(logger, "propagate"))) return !is_changed();
      logger = tr_.getattr(logger, "parent");
    }
    return false;
  }
  std::vector<PyObject*> objects() && { return std::move(objects_); }

 private:
  bool takes_logger(Variable* logger) {
    auto* cls = reinterpret_cast<PyObject*>(logger->type());
    if (!logger->is(Kind::Object) || (cls != of_logging("Logger") && cls != of_logging("RootLogger"))) return false;
    if (!takes(logger)) return false;
    for (const char* list : {"filters", "handlers"}) {
      Variable* all = tr_.force(tr_.getattr(logger, list));
      if (!takes(all) || !all->is(Kind::List)) return false;
      for (Variable* one : all->items(tr_))
        if (!takes_part(one)) return false;
    }
    return true;
  }

  // A handler, filter or format.
  bool takes_part(Variable* part) {
    part = tr_.force(part);
    if (is_none(part)) return true;
    if (!part->is(Kind::Object) || !takes(part)) return false;
    const std::string module = module_of(part->type());
    const bool of_the_library = module == "logging" || module == "logging.handlers";
    if (!of_the_library) return !is_captured(tr_, module) && !frames_lead_to(tr_, objects_.back());
    auto is = [&](const char* cls) {
      return PyType_IsSubtype(part->type(), reinterpret_cast<PyTypeObject*>(of_logging(cls)));
    };
    if (is("Formatter")) return !names_place(tr_.force(tr_.getattr(part, "_fmt")));
    if (!is("Handler")) return is("Filter");
    Variable* filters = tr_.force(tr_.getattr(part, "filters"));
    if (!takes(filters) || !filters->is(Kind::List)) return false;
    for (Variable* filter : filters->items(tr_))
      if (!takes_part(filter)) return false;
    return takes_part(tr_.getattr(part, "formatter"));
  }

  // Whether it prints where the message is given, which would be where the entry is called.
  static bool names_place(Variable* format) {
    PyObject* text = format->as_constant();
    const char* words = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
    if (!words) return true;
    for (const char* place : {"lineno", "funcName", "filename", "pathname", "module"})
      if (std::string_view(words).find(place) != std::string_view::npos) return true;
    return false;
  }

  bool takes(Variable* v) {
    PyObject* object = object_behind(v);
    if (!object) return false;
    if (DictVariable* attributes = v->is(Kind::Object) ? v->as<ObjectVariable>()->instance_dict(tr_) : nullptr)
      if (PyObject* dict = object_behind(attributes)) objects_.push_back(dict);
    objects_.push_back(object);
    return true;
  }

  bool is_changed() {
    const auto& changed = tr_.effects.modifications();
    return std::any_of(changed.begin(), changed.end(), [&](Variable* v) {
      return std::find(objects_.begin(), objects_.end(), object_behind(v)) != objects_.end();
    });
  }

  Translator& tr_;
  std::vector<PyObject*> objects_;
};

// A method of logging.Logger. nullptr: as its Python code has it.
Variable* log_message(Translator& tr, Args& a, const char* method) {
  if (a.size() < 1 || !a[0]->source.valid()) return nullptr;
  // Of what was raised, the frames above, and of fields that may be refused.
  for (auto& [name, v] : a.kw) {
    const bool nothing = tr.real.is_python_constant(v) && !tr.truth(v);
    if (!nothing || PyUnicode_CompareWithASCIIString(name, "extra") == 0) return nullptr;
  }
  for (size_t i = 1; i < a.size(); ++i)
    if (!tr.real.is_python_constant(a[i])) return nullptr;
  const bool names_level = std::string_view(method) == "log";
  if (a.size() < (names_level ? 3 : 2)) return nullptr;
  PyObject* level = names_level ? constant_of(tr.force(a[1])) : nullptr;
  if (names_level && !(level && PyLong_Check(level))) return nullptr;
  Route route(tr);
  if (!route.can_wait(a[0])) return nullptr;
  Variable* bound = tr.getattr(a[0], method);
  tr.effects.defer_message(bound, Args{{a.pos.begin() + 1, a.pos.end()}, a.kw}, std::move(route).objects());
  return tr.none();
}

// logging.getLogger(name): made now, if it is not there; it stays for good. One of the program's class is made by its
// own code, in the entry.
Variable* get_logger(Translator& tr, Args& a) {
  if (a.size() > 1 || !a.kw.empty() || (a.size() && !tr.real.is_python_constant(a[0]))) return nullptr;
  Variable* cls = logging_settings(tr)->get(tr, tr.intern("_loggerClass"));
  if (!cls || tr.force(cls)->as_constant() != of_logging("Logger")) return nullptr;
  PyObject* get = of_logging("getLogger");
  Ref logger =
      Ref::steal(a.size() ? PyObject_CallOneArg(get, tr.real.to_python(a[0]).get()) : PyObject_CallNoArgs(get));
  if (!logger) tr.raise_current();
  return tr.global_object(logger.get(), Ground::pure(a));
}

Variable* log_debug(Translator& tr, Args& a) { return log_message(tr, a, "debug"); }
Variable* log_info(Translator& tr, Args& a) { return log_message(tr, a, "info"); }
Variable* log_warning(Translator& tr, Args& a) { return log_message(tr, a, "warning"); }
Variable* log_error(Translator& tr, Args& a) { return log_message(tr, a, "error"); }
Variable* log_critical(Translator& tr, Args& a) { return log_message(tr, a, "critical"); }
Variable* log_log(Translator& tr, Args& a) { return log_message(tr, a, "log"); }

}  // namespace

void register_logging_builtins() {
  const std::pair<const char*, BuiltinHandler> rows[] = {{"debug", log_debug},       {"info", log_info},
                                                         {"warning", log_warning},   {"error", log_error},
                                                         {"critical", log_critical}, {"log", log_log}};
  for (auto& [name, handler] : rows) register_builtin("logging", (std::string("Logger.") + name).c_str(), handler);
  register_builtin("logging", "getLogger", get_logger);
}

}  // namespace braze::capture
