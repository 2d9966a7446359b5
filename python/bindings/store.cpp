#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "buffer.h"
#include "options.h"
#include "reports.h"
#include "stores.h"

namespace deltawire::python {
namespace {

using Info = std::tuple<std::string, uint64_t, int64_t>;

Info info_of(const ObjectInfo& info) { return {info.name, info.size_bytes, info.modified}; }

// body(store) -> Status or Result, without the GIL.
template <class Body>
auto call(const StoreHandle& handle, const Body& body) {
  const std::shared_ptr<Store> store = handle.get();
  return ForPython()(without_gil([&] { return body(*store); }));
}

nb::bytes get(const StoreHandle& handle, const std::string& name, uint64_t offset,
              std::optional<uint64_t> length) {
  const uint64_t size = call(handle, [&](Store& store) { return store.stat(name); }).size_bytes;
  const uint64_t begin = std::min(offset, size);
  const uint64_t count = std::min(length.value_or(size), size - begin);
  nb::bytes bytes = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, Py_ssize_t(count)));
  if (!bytes.is_valid()) throw nb::python_error();
  // No other code has a reference yet.
  const std::span<uint8_t> out(reinterpret_cast<uint8_t*>(PyBytes_AsString(bytes.ptr())), count);
  call(handle, [&](Store& store) { return store.read(name, begin, out); });
  return bytes;
}

template <Status (Store::*kPut)(std::string_view, const Body&)>
void put(const StoreHandle& handle, const std::string& name, nb::bytes data) {
  const std::string_view text(data.c_str(), data.size());
  call(handle, [&](Store& store) { return (store.*kPut)(name, MemoryBody(text)); });
}

}  // namespace

StoreHandle::~StoreHandle() {
  if (store_ == nullptr) return;
  if (getpid() != process_) {
    static_cast<void>(new std::shared_ptr<Store>(std::move(store_)));  // leaked: it has no threads
  } else {
    let_go(std::move(store_));
  }
}

const std::shared_ptr<Store>& StoreHandle::get() const {
  if (getpid() != process_) {
    throw StatusError(invalid_argument(store_->url() + ": opened by process " +
                                       std::to_string(process_) +
                                       "; a forked child process must open its own"));
  }
  return store_;
}

void bind_stores(nb::module_& module) {
  nb::class_<StoreHandle>(module, "Store")
      .def_prop_ro("url", [](const StoreHandle& self) { return self.get()->url(); })
      .def("put", &put<&Store::put>, nb::arg("name"), nb::arg("data"))
      .def("put_if_absent", &put<&Store::put_if_absent>, nb::arg("name"), nb::arg("data"))
      .def("get", &get, nb::arg("name"), nb::arg("offset"), nb::arg("length").none())
      .def(
          "read_into",
          [](const StoreHandle& self, const std::string& name, nb::object out) {
            const Buffer buffer(out, Buffer::Access::kWrite);
            call(self, [&](Store& store) { return store.read(name, 0, buffer.writable()); });
          },
          nb::arg("name"), nb::arg("out"))
      .def(
          "get_text",
          [](const StoreHandle& self, const std::string& name, uint64_t max_bytes) {
            return call(self, [&](Store& store) { return store.get(name, max_bytes); });
          },
          nb::arg("name"), nb::arg("max_bytes"))
      .def(
          "stat",
          [](const StoreHandle& self, const std::string& name) {
            return info_of(call(self, [&](Store& store) { return store.stat(name); }));
          },
          nb::arg("name"))
      .def(
          "list",
          [](const StoreHandle& self, const std::string& prefix, const std::string& start_after,
             size_t limit) {
            std::vector<Info> infos;
            for (const ObjectInfo& info :
                 call(self, [&](Store& store) { return store.list(prefix, start_after, limit); })) {
              infos.push_back(info_of(info));
            }
            return infos;
          },
          nb::arg("prefix"), nb::arg("start_after"), nb::arg("limit"))
      .def(
          "remove",
          [](const StoreHandle& self, const std::string& name) {
            call(self, [&](Store& store) { return store.remove(name); });
          },
          nb::arg("name"));

  module.def(
      "open_store",
      [](const std::string& url, const nb::kwargs& given) {
        StoreOptions options;
        DW_OPTIONS(options, given, endpoint, region, virtual_host, ca_file, connections,
                   multipart_bytes, call_timeout_seconds, token, token_file, client_cert, retries,
                   max_bytes_per_second);
        return StoreHandle(unwrap(without_gil([&] { return open_store(url, options); })));
      },
      nb::arg("url"), nb::arg("options"));
  module.def(
      "adapt_store", [](nb::object store) { return StoreHandle(adapt_store(std::move(store))); },
      nb::arg("store"));
}

}  // namespace deltawire::python
