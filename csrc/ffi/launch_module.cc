#include "ffi/launch_module.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "launch/copy.h"
#include "launch/launcher.h"
#include "launch/pack.h"
#include "launch/recording.h"
#include "launch/variants.h"

namespace py = pybind11;

namespace tcgen05 {
namespace {

using launch::Launcher;
using launch::RecordingDriver;
using Integers = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;

// A Plan from the dict that `Plan.attributes` makes.
Plan plan_of(const py::dict& attributes) {
  std::map<std::string, Integers> lists;
  const auto integers = [&](const char* name) {
    const Integers& list = lists[name] = attributes[name].cast<Integers>();
    return Int64s{list.data(), static_cast<size_t>(list.size())};
  };
  const std::string opcode = attributes["opcode"].cast<std::string>();
  PlanAttributes out;
  out.opcode = opcode;
  out.idesc = attributes["idesc"].cast<int64_t>();
  out.shared_bytes = attributes["shared_bytes"].cast<int64_t>();
  out.tmem_columns = attributes["tmem_columns"].cast<int64_t>();
  out.repeats = integers("repeats");
  out.d_starts = integers("d_starts");
  out.a_starts = integers("a_starts");
  out.b_starts = integers("b_starts");
  out.sfa_starts = integers("sfa_starts");
  out.sfb_starts = integers("sfb_starts");
  out.d_place = integers("d_place");
  out.a_place = integers("a_place");
  out.b_place = integers("b_place");
  out.sfa_place = integers("sfa_place");
  out.sfb_place = integers("sfb_place");
  return decode_plan(out);
}

// A buffer that is never touched: (address, bytes of an item, shape).
using Given = std::tuple<uint64_t, int64_t, std::vector<int64_t>>;

Buffer buffer_of(const Given& given) {
  return {reinterpret_cast<void*>(std::get<0>(given)), std::get<1>(given), std::get<2>(given)};
}

launch::Stream stream_of(uint64_t stream) { return reinterpret_cast<launch::Stream>(stream); }

void execute(Launcher& launcher, const py::dict& attributes, const std::vector<Given>& arguments,
             const Given& result, uint64_t stream) {
  const Plan plan = plan_of(attributes);
  std::vector<Buffer> buffers;
  for (const Given& given : arguments) buffers.push_back(buffer_of(given));
  const Arrays arrays = bind_arrays(plan, buffers, buffer_of(result));
  const py::gil_scoped_release release;
  launcher.execute(plan, arrays, stream_of(stream));
}

py::dict launch_dict(const RecordingDriver::Launch& launch) {
  py::dict out;
  out["entry"] = launch.entry;
  out["ctas"] = launch.grid.ctas;
  out["cluster"] = launch.grid.cluster;
  out["threads"] = launch.grid.threads;
  out["shared_bytes"] = launch.grid.shared_bytes;
  out["stream"] = reinterpret_cast<uintptr_t>(launch.stream);
  out["params"] = py::bytes(launch.params);
  return out;
}

py::dict copy_dict(const py::dict& attributes, const std::string& operand, bool aligned) {
  const Plan plan = plan_of(attributes);
  const std::map<std::string, const Placement*> placements = {
      {"d", &plan.d}, {"a", &plan.a}, {"b", &plan.b}, {"sfa", &plan.sfa}, {"sfb", &plan.sfb}};
  const launch::Copy copy = launch::make_copy(*placements.at(operand), aligned);
  py::array_t<uint32_t> source(copy.work), lane(copy.work), offset(copy.work);
  for (uint32_t n = 0; n < copy.work; ++n) {
    const launch::Place place = launch::locate(copy, n);
    source.mutable_at(n) = place.source;
    lane.mutable_at(n) = place.lane;
    offset.mutable_at(n) = place.offset;
  }
  static const char* const kModes[] = {"bytes1",   "bytes2",   "bytes4",  "bytes16",
                                       "pack_fp6", "pack_fp4", "nibbles", "bits"};
  py::dict out;
  out["mode"] = kModes[static_cast<size_t>(copy.mode)];
  out["chunks"] = copy.chunks;
  out["source_bytes"] = copy.source_bytes;
  out["keep"] = copy.keep;
  out["shift"] = copy.shift;
  out["block_bits"] = copy.block_bits;
  out["block_log2"] = copy.block_log2;
  out["steps"] = copy.steps;
  out["source"] = source;
  out["lane"] = lane;
  out["offset"] = offset;
  return out;
}

// Offsets of the fields of Params that a test reads, and of those of its parts.
py::dict params_offsets() {
  using launch::Copy;
  using launch::Params;
  using launch::Strided;
  py::dict out;
#define TCGEN05_FIELD(TYPE, NAME) out[#TYPE "." #NAME] = offsetof(TYPE, NAME)
  TCGEN05_FIELD(Params, batch);
  TCGEN05_FIELD(Params, batch_axes);
  TCGEN05_FIELD(Params, batch_size);
  TCGEN05_FIELD(Params, idesc);
  TCGEN05_FIELD(Params, collector);
  TCGEN05_FIELD(Params, m_repeat);
  TCGEN05_FIELD(Params, shared_bytes);
  TCGEN05_FIELD(Params, pitch);
  TCGEN05_FIELD(Params, start);
  TCGEN05_FIELD(Params, in_tmem);
  TCGEN05_FIELD(Params, copy);
  TCGEN05_FIELD(Params, operand);
  TCGEN05_FIELD(Params, result);
  TCGEN05_FIELD(Params, accum);
  TCGEN05_FIELD(Params, table);
  TCGEN05_FIELD(Copy, step);
  TCGEN05_FIELD(Strided, batch_stride);
#undef TCGEN05_FIELD
  out["Params"] = sizeof(Params);
  return out;
}

void bind_recording(py::module_& m) {
  py::class_<RecordingDriver>(m, "RecordingDriver", "A driver that records and launches nothing.")
      .def(py::init<>())
      .def_readwrite("reason", &RecordingDriver::reason)
      .def_readwrite("failures", &RecordingDriver::failures)
      .def(
          "set_device",
          [](RecordingDriver& driver, const std::string& name, int major, int minor, int multiprocessors,
             int64_t shared_per_block) {
            driver.properties = {
                name, major, minor, multiprocessors, shared_per_block, shared_per_block + 1024};
          },
          py::arg("name"), py::arg("major"), py::arg("minor"), py::arg("multiprocessors") = 148,
          py::arg("shared_per_block") = 232448)
      .def_readonly("calls", &RecordingDriver::calls)
      .def_property_readonly("launches", [](const RecordingDriver& driver) {
        py::list out;
        for (const RecordingDriver::Launch& launch : driver.launches) out.append(launch_dict(launch));
        return out;
      });

  py::class_<Launcher>(m, "Launcher", "launch::Launcher on a RecordingDriver.")
      .def(py::init([](RecordingDriver& driver, const std::string& directory) {
             return new Launcher(driver, directory);
           }),
           py::arg("driver"), py::arg("directory"), py::keep_alive<1, 2>())
      .def(
          "prepare",
          [](Launcher& launcher, const py::dict& plan, bool masked, uint64_t stream) {
            const Plan decoded = plan_of(plan);
            const py::gil_scoped_release release;
            launcher.prepare(decoded, masked, stream_of(stream));
          },
          py::arg("plan"), py::arg("masked"), py::arg("stream"))
      .def("execute", &execute, py::arg("plan"), py::arg("arguments"), py::arg("result"), py::arg("stream"));
}

void bind_error(py::module_& m) {
  static py::exception<launch::LaunchError> type(m, "LaunchError", PyExc_RuntimeError);
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const launch::LaunchError& error) {
      static const char* const kFailures[] = {"unavailable", "unimplemented", "exhausted", "internal"};
      const py::object value = py::handle(type)(error.what());
      value.attr("failure") = kFailures[static_cast<size_t>(error.failure())];
      PyErr_SetObject(type.ptr(), value.ptr());
    }
  });
}

}  // namespace

void bind_launch(py::module_& m) {
  bind_error(m);
  bind_recording(m);
  m.def("launch_copy", &copy_dict, py::arg("plan"), py::arg("operand"), py::arg("aligned"),
        "How the kernels copy one operand of a plan: mode, and source chunk, lane and offset of each piece.");
  m.def("launch_params_offsets", &params_offsets, "Byte offsets in the kernels' parameter block.");
  m.def(
      "launch_entry",
      [](const std::string& opcode, bool a_in_tmem, bool masked) {
        return launch::entry_name(parse_opcode(opcode), a_in_tmem, masked);
      },
      py::arg("opcode"), py::arg("a_in_tmem"), py::arg("masked"), "The kernel that runs a call.");
}

}  // namespace tcgen05
