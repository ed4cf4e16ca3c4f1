#include "ffi/vsm_module.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "vsm/decode.h"
#include "vsm/module.h"
#include "vsm/tensormap.h"
#include "vsm/trace.h"

namespace py = pybind11;

namespace tcgen05 {
namespace {

py::tuple tuple3(const vsm::Dim3& d) { return py::make_tuple(d.x, d.y, d.z); }

// Buffers of one launch; keeps the arrays alive, and who wrote the watched ones.
class Memory {
 public:
  void watch(uint64_t address) {
    const vsm::Region* r = memory.find(address, 1);
    if (!r || r->base != address) return;  // an empty array
    std::vector<vsm::Writer>& w = writers_[address];
    w.assign(r->bytes, {});
    memory.watch(address, w.data());
  }
  // Of the byte: None, or its instruction's number, CTA and thread.
  py::object writer(uint64_t address, uint64_t byte) const {
    auto found = writers_.find(address);
    if (found == writers_.end() || byte >= found->second.size() || !found->second[byte].instruction)
      return py::none();
    const vsm::Writer& w = found->second[byte];
    return py::make_tuple(w.instruction - 1, tuple3(w.cta), w.thread);
  }
  bool watched() const { return !writers_.empty(); }
  uint64_t add(py::buffer array, bool writable, const std::string& name) {
    py::buffer_info info = array.request(writable);
    uint64_t bytes = static_cast<uint64_t>(info.size) * static_cast<uint64_t>(info.itemsize);
    uint64_t address = memory.add(info.ptr, bytes, writable, name);
    arrays_.push_back(std::move(info));
    return address;
  }
  vsm::GlobalMemory memory;

 private:
  std::vector<py::buffer_info> arrays_;
  std::map<uint64_t, std::vector<vsm::Writer>> writers_;
};

// (line, opcode, text) of every instruction of a kernel.
py::list instructions(const vsm::LoadedModule& m, const std::string& kernel) {
  const vsm::Program& p = m.program(kernel);
  py::list out;
  for (const vsm::Instr& in : p.code) {
    const vsm::Origin& o = p.origins[in.origin];
    out.append(py::make_tuple(o.statement->line, p.opcodes[o.opcode], std::string(o.statement->text)));
  }
  return out;
}

// (kind, start, end or None, CTA of the instruction, CTA of the mbarrier, warp, instruction, lanes, notes).
py::list events(const vsm::TraceSink& sink) {
  static constexpr const char* kKinds[] = {"instruction", "effect", "mbarrier"};
  py::list out;
  for (const vsm::Event& e : sink.events()) {
    py::dict notes;
    for (const auto& [name, value] : e.notes)
      notes[name] = name == std::string("tx") ? py::int_(static_cast<int64_t>(value)) : py::int_(value);
    py::object end = e.end == vsm::kNever ? py::object(py::none()) : py::object(py::int_(e.end));
    out.append(py::make_tuple(kKinds[static_cast<int>(e.kind)], e.start, end, tuple3(e.cta), tuple3(e.owner),
                              e.warp, e.pc, e.lanes, notes));
  }
  return out;
}

py::list parameters(const vsm::LoadedModule& m, const std::string& kernel) {
  const vsm::Program& p = m.program(kernel);
  py::list out;
  for (const vsm::Variable* v : p.entry->params)
    out.append(
        py::make_tuple(v->name, p.offsets.at(v), v->bytes, std::string(vsm::name_of(v->type)), v->align));
  return out;
}

vsm::Dim3 dim3(const std::array<uint32_t, 3>& v) { return {v[0], v[1], v[2]}; }

py::dict launch(vsm::LoadedModule& m, const std::string& kernel, std::array<uint32_t, 3> grid,
                std::array<uint32_t, 3> block, std::array<uint32_t, 3> cluster, uint32_t shared_bytes,
                const py::bytes& params, Memory& memory, const std::string& schedule, bool strict,
                uint64_t step_limit, unsigned threads, vsm::TraceSink* trace, const py::object& progress) {
  const vsm::Program& program = m.program(kernel);
  vsm::LaunchConfig c;
  c.grid = dim3(grid);
  c.block = dim3(block);
  c.cluster = dim3(cluster);
  c.dynamic_shared = shared_bytes;
  std::string bytes = params;
  c.params.assign(bytes.begin(), bytes.end());
  m.add_variables(memory.memory);
  c.memory = &memory.memory;
  c.schedule = schedule == "late"    ? vsm::Schedule::late
               : schedule == "eager" ? vsm::Schedule::eager
                                     : vsm::Schedule::fair;
  c.strict = strict;
  c.step_limit = step_limit;
  c.threads = threads;
  c.trace = trace;
  c.watched = memory.watched();
  c.poll = [&progress](uint64_t finished, uint64_t clusters, uint64_t steps) {
    py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (!progress.is_none()) progress(finished, clusters, steps);
  };
  vsm::LaunchResult r;
  {
    py::gil_scoped_release release;
    r = vsm::launch(program, std::move(c));
  }
  py::dict opcodes;
  for (const auto& [name, count] : r.opcodes) opcodes[py::str(name)] = count;
  py::dict out;
  out["opcodes"] = opcodes;
  out["instructions"] = r.instructions;
  out["thread_instructions"] = r.thread_instructions;
  out["macs"] = r.macs;
  out["asynchronous"] = r.asynchronous;
  py::dict read, written;
  for (int i = 0; i < vsm::Traffic::kCount; ++i) {
    read[vsm::kTrafficNames[i]] = r.traffic.read[i];
    written[vsm::kTrafficNames[i]] = r.traffic.written[i];
  }
  out["bytes_read"] = read;
  out["bytes_written"] = written;
  return out;
}

py::list instruction_table() {
  py::list out;
  for (const vsm::Family& f : vsm::instruction_table())
    for (size_t i = 0; i < f.size; ++i)
      out.append(py::make_tuple(std::string(f.name), std::string(f.entries[i].root),
                                f.entries[i].decode != vsm::refused, std::string(f.entries[i].forms)));
  return out;
}

// im2col: (lower corner, upper corner, channels per pixel, pixels per column[, whether for im2col::w]) or
// None.
py::bytes encode_tensor_map(uint64_t address, const std::string& dtype, std::vector<uint64_t> gdim,
                            std::vector<uint64_t> gstride, std::vector<uint32_t> box,
                            std::vector<uint32_t> estride, int interleave, int swizzle, int oob,
                            const py::object& im2col) {
  vsm::TensorMapArguments a;
  a.address = address;
  a.dtype = dtype;
  a.gdim = std::move(gdim);
  a.gstride = std::move(gstride);
  a.box = std::move(box);
  a.estride = std::move(estride);
  a.interleave = interleave;
  a.swizzle = swizzle;
  a.oob = oob;
  if (!im2col.is_none()) {
    py::tuple t = im2col.cast<py::tuple>();
    if (t.size() != 4 && t.size() != 5)
      throw py::value_error("im2col must have 4 or 5 entries, got " + std::to_string(t.size()));
    a.im2col = true;
    a.lower = t[0].cast<std::vector<int>>();
    a.upper = t[1].cast<std::vector<int>>();
    a.channels = t[2].cast<uint32_t>();
    a.pixels = t[3].cast<uint32_t>();
    a.wide = t.size() == 5 && t[4].cast<bool>();
  }
  vsm::TensorMap map = vsm::encode_tensor_map(a);
  return py::bytes(reinterpret_cast<const char*>(&map), sizeof map);
}

}  // namespace

void bind_vsm(py::module_& parent) {
  py::module_ m = parent.def_submodule("vsm", "The virtual SM; see jax_tcgen05.vsm.");
  py::register_exception<vsm::LoadError>(m, "LoadError", PyExc_ValueError);
  py::register_exception<vsm::ExecutionError>(m, "ExecutionError", PyExc_RuntimeError);
  py::class_<Memory>(m, "Memory")
      .def(py::init<>())
      .def("add", &Memory::add, py::arg("array"), py::arg("writable"), py::arg("name"))
      .def("watch", &Memory::watch, py::arg("address"))
      .def("writer", &Memory::writer, py::arg("address"), py::arg("byte"));
  py::class_<vsm::TraceSink>(m, "TraceSink")
      .def(py::init<size_t>(), py::arg("limit"))
      .def("events", &events)
      .def("truncated", &vsm::TraceSink::truncated);
  py::class_<vsm::LoadedModule>(m, "Module")
      .def(py::init<std::string>(), py::arg("text"))
      .def("kernels", &vsm::LoadedModule::kernels)
      .def("parameters", &parameters, py::arg("kernel"))
      .def("instructions", &instructions, py::arg("kernel"))
      .def("launch", &launch, py::arg("kernel"), py::arg("grid"), py::arg("block"), py::arg("cluster"),
           py::arg("shared_bytes"), py::arg("params"), py::arg("memory"), py::arg("schedule"),
           py::arg("strict"), py::arg("step_limit"), py::arg("threads"), py::arg("trace") = nullptr,
           py::arg("progress") = py::none());
  m.def("encode_tensor_map", &encode_tensor_map, py::arg("address"), py::arg("dtype"), py::arg("gdim"),
        py::arg("gstride"), py::arg("box"), py::arg("estride"), py::arg("interleave"), py::arg("swizzle"),
        py::arg("oob"), py::arg("im2col"),
        "The 128 bytes of a tensor map; ValueError if the arguments make none.");
  m.def("instruction_table", &instruction_table, "(family, opcode, executed, forms) of every row.");
}

}  // namespace tcgen05
