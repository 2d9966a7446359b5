// A store written in Python, as the library sees it.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>

#include "raised.h"
#include "status.h"
#include "store/retrying_store.h"
#include "stores.h"

namespace deltawire::python {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{16} << 20;  // of downloads: what is held at once

std::span<const uint8_t> bytes_of(const nb::bytes& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.c_str()), bytes.size()};
}

// The library calls from threads of its own: every method takes the GIL, and turns what is raised
// into a Status before it lets go of it.
class PythonStore final : public Store {
 public:
  explicit PythonStore(nb::object object)
      : object_(std::move(object)),
        url_(nb::cast<std::string>(object_.attr("url"))),
        can_put_if_absent_(nb::cast<bool>(object_.attr("can_put_if_absent"))) {}

  ~PythonStore() override {
    if (!Py_IsInitialized()) {
      static_cast<void>(object_.release());
      return;
    }
    const nb::gil_scoped_acquire gil;
    object_.reset();
  }

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
    DW_ASSIGN_OR_RETURN(std::string bytes, piece(name, 0, max_bytes + 1));
    if (bytes.size() > max_bytes) return corruption(place(name) + ": larger than it may be");
    return bytes;
  }

  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override {
    DW_ASSIGN_OR_RETURN(const std::string bytes, piece(name, offset, out.size()));
    if (bytes.size() != out.size()) return corruption(place(name) + ": shorter than expected");
    std::copy(bytes.begin(), bytes.end(), out.begin());
    return {};
  }

  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override {
    for (uint64_t at = 0;;) {
      // One byte more than there should be left: an object that is longer gives itself away.
      const uint64_t left = size_bytes - at;
      DW_ASSIGN_OR_RETURN(const std::string bytes,
                          piece(name, at, std::min(kPieceBytes, left + 1)));
      if (bytes.size() > left || (bytes.empty() && left != 0)) {
        return corruption(place(name) + ": expected " + std::to_string(size_bytes) + " bytes");
      }
      DW_RETURN_IF_ERROR(
          sink->write(at, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
      at += bytes.size();
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
    return ask<bool>(name,
                     [&] {
                       object_.attr("remove")(name);
                       return true;
                     })
        .status();
  }

 private:
  std::string place(std::string_view name) const { return url_ + "/" + std::string(name); }

  static ObjectInfo info_of(nb::handle info) {
    return {nb::cast<std::string>(info.attr("name")), nb::cast<uint64_t>(info.attr("size_bytes")),
            int64_t(nb::cast<double>(info.attr("modified")))};
  }

  // body() -> T, with the GIL.
  template <class T, class Body>
  Result<T> ask(std::string_view name, const Body& body) const {
    const nb::gil_scoped_acquire gil;
    try {
      return body();
    } catch (const nb::python_error& error) {
      return note_raised(error.value()).at(place(name));
    } catch (const nb::cast_error&) {
      return internal_error(place(name) + ": the store's answer has the wrong type");
    }
  }

  Status put(const char* method, std::string_view name, const Body& body) {
    std::string data(body.size(), '\0');
    DW_RETURN_IF_ERROR(body.read(0, {reinterpret_cast<uint8_t*>(data.data()), data.size()}));
    return ask<bool>(name,
                     [&] {
                       object_.attr(method)(name, nb::bytes(data.data(), data.size()));
                       return true;
                     })
        .status();
  }

  Result<std::string> piece(std::string_view name, uint64_t offset, uint64_t length) const {
    return ask<std::string>(name, [&] {
      const nb::bytes bytes(object_.attr("get")(name, offset, length));
      const auto span = bytes_of(bytes);
      return std::string(span.begin(), span.end());
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
