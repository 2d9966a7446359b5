// Adapts a store written in Python to the library's interface.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "buffer.h"
#include "lent.h"
#include "store/retrying_store.h"
#include "stores.h"

namespace deltawire::python {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{16} << 20;  // read at a time

// A body as Python bytes, which the store may keep. Needs the GIL and releases it during the read.
nb::bytes bytes_of(const Body& body) {
  const size_t size = size_t(body.size());
  nb::bytes bytes = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, Py_ssize_t(size)));
  if (!bytes.is_valid()) throw nb::python_error();
  auto* const data = reinterpret_cast<uint8_t*>(PyBytes_AsString(bytes.ptr()));
  Status status = without_gil([&] { return body.read(0, {data, size}); });
  if (!status.ok()) throw StatusError(std::move(status));
  return bytes;
}

// The library calls it from its own threads: every method acquires the GIL, and converts exceptions
// to a Status before it releases the GIL.
class PythonStore final : public Store {
 public:
  explicit PythonStore(nb::object object)
      : object_(std::move(object)),
        url_(nb::cast<std::string>(object_.attr("url"))),
        can_put_if_absent_(nb::cast<bool>(object_.attr("can_put_if_absent"))) {}

  ~PythonStore() override { drop(&object_); }

  std::string url() const override { return url_; }
  Result<Capabilities> capabilities() override { return Capabilities{can_put_if_absent_}; }

  Status put(std::string_view name, const Body& body) override { return put("put", name, body); }
  Status put_if_absent(std::string_view name, const Body& body) override {
    return put("put_if_absent", name, body);
  }

  Result<ObjectInfo> stat(std::string_view name) override {
    return ask<ObjectInfo>(name, [&] { return info_of(object_.attr("stat")(name)); });
  }

  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    std::string text;
    const auto take = [&](std::span<const uint8_t> bytes) {
      text.assign(bytes.begin(), bytes.end());
      return Status();
    };
    DW_ASSIGN_OR_RETURN(const uint64_t size, piece(name, 0, max_bytes + 1, take));
    if (size > max_bytes) {
      return corruption(place(name) + ": larger than " + std::to_string(max_bytes) + " bytes");
    }
    return text;
  }

  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override {
    while (!out.empty()) {
      const uint64_t wanted = std::min<uint64_t>(out.size(), kPieceBytes);
      const auto take = [&](std::span<const uint8_t> bytes) {
        std::memcpy(out.data(), bytes.data(), bytes.size());
        return Status();
      };
      DW_ASSIGN_OR_RETURN(const uint64_t size, piece(name, offset, wanted, take));
      if (size != wanted) return corruption(place(name) + ": shorter than expected");
      offset += size;
      out = out.subspan(size_t(size));
    }
    return {};
  }

  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override {
    for (uint64_t at = 0;;) {
      // Asks for one byte more than expected, to detect an object that is too long.
      const uint64_t left = size_bytes - at;
      const auto take = [&](std::span<const uint8_t> bytes) {
        return bytes.size() > left ? Status() : sink->write(at, bytes);
      };
      DW_ASSIGN_OR_RETURN(const uint64_t size,
                          piece(name, at, std::min(kPieceBytes, left + 1), take));
      if (size > left || (size == 0 && left != 0)) {
        return corruption(place(name) + ": expected " + std::to_string(size_bytes) + " bytes");
      }
      at += size;
      if (at == size_bytes) return {};
    }
  }

  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override {
    return ask<std::vector<ObjectInfo>>(prefix, [&] {
      std::vector<ObjectInfo> infos;
      for (nb::handle info : object_.attr("list")(prefix, start_after, limit)) {
        infos.push_back(info_of(info));
      }
      return infos;
    });
  }

  Status remove(std::string_view name) override {
    return tell(name, [&] { object_.attr("remove")(name); });
  }

 private:
  std::string place(std::string_view name) const { return url_ + "/" + std::string(name); }

  static ObjectInfo info_of(nb::handle info) {
    return {nb::cast<std::string>(info.attr("name")), nb::cast<uint64_t>(info.attr("size_bytes")),
            int64_t(nb::cast<double>(info.attr("modified")))};
  }

  template <class T, class Body>
  Result<T> ask(std::string_view name, const Body& body) const {
    return ask_python<T>(place(name), body);
  }

  template <class Call>
  Status tell(std::string_view name, const Call& call) const {
    return ask<bool>(name, [&] { return call(), true; }).status();
  }

  Status put(const char* method, std::string_view name, const Body& body) {
    return tell(name, [&] { object_.attr(method)(name, bytes_of(body)); });
  }

  // Passes up to `length` bytes from `offset` to take(bytes), without a copy and without the GIL.
  // Returns their number.
  template <class Take>
  Result<uint64_t> piece(std::string_view name, uint64_t offset, uint64_t length,
                         const Take& take) const {
    return ask<uint64_t>(name, [&]() -> uint64_t {
      const nb::object answer = object_.attr("get")(name, offset, length);
      const Buffer buffer(answer);
      const auto bytes = buffer.span();
      Status status = bytes.size() > length
                          ? internal_error(place(name) + ": the store's get() returned " +
                                           std::to_string(bytes.size()) + " bytes instead of " +
                                           std::to_string(length))
                          : without_gil([&] { return take(bytes); });
      if (!status.ok()) throw StatusError(std::move(status));
      return bytes.size();
    });
  }

  nb::object object_;
  const std::string url_;
  const bool can_put_if_absent_;
};

}  // namespace

std::shared_ptr<Store> adapt_store(nb::object object) {
  RetryPolicy policy;
  policy.retries = nb::cast<unsigned>(object.attr("retries"));
  return std::make_shared<RetryingStore>(std::make_shared<PythonStore>(std::move(object)), policy);
}

}  // namespace deltawire::python
