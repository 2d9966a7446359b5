// A store of the library that forwards some calls to Python, for deltawire/nixl.py.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <chrono>
#include <memory>

#include "buffer.h"
#include "lent.h"
#include "store/forwarding_store.h"
#include "stores.h"

namespace deltawire::python {
namespace {

// `get`: get(store, name) -> str provides the objects "PREFIXname", which are not listed.
// `pieces`: pieces(store, name, size_bytes) -> Iterator[Buffer] provides the bytes of objects, in
// order; an object that it does not provide completely is read from the inner store. Both get the
// inner store as an argument, because a callable that stored it would keep it until finalization.
class HookedStore final : public ForwardingStore {
 public:
  HookedStore(std::shared_ptr<Store> inner, std::string prefix, nb::object get, nb::object pieces)
      : ForwardingStore(inner),
        inner_(std::move(inner)),
        prefix_(std::move(prefix)),
        answers_(!get.is_none()),
        brings_(!pieces.is_none()),
        get_(std::move(get)),
        pieces_(std::move(pieces)) {}
  ~HookedStore() override {
    drop(&get_);
    drop(&pieces_);
  }

  Result<ObjectInfo> stat(std::string_view name) override {
    if (!is_answered(name)) return inner().stat(name);
    DW_ASSIGN_OR_RETURN(const std::string text, get(name, UINT64_MAX));
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return ObjectInfo{std::string(name), text.size(),
                      std::chrono::floor<std::chrono::seconds>(now).count()};
  }

  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    if (!is_answered(name)) return inner().get(name, max_bytes);
    return ask_python<std::string>(place(name), [&] {
      return nb::cast<std::string>(get_(StoreHandle(inner_), name.substr(prefix_.size())));
    });
  }

  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override {
    if (!brings_) return inner().download(name, size_bytes, sink);
    Status written;
    const auto end = ask_python<uint64_t>(place(name), [&] {
      uint64_t at = 0;
      for (nb::handle piece : nb::iter(pieces_(StoreHandle(inner_), name, size_bytes))) {
        const Buffer buffer(piece);
        const auto bytes = buffer.span();
        if (bytes.size() > size_bytes - at) break;
        written = without_gil([&] { return sink->write(at, bytes); });
        if (!written.ok()) break;
        at += bytes.size();
      }
      return at;
    });
    DW_RETURN_IF_ERROR(written);
    if (end.ok() && *end == size_bytes) return {};
    return inner().download(name, size_bytes, sink);
  }

 private:
  bool is_answered(std::string_view name) const { return answers_ && name.starts_with(prefix_); }
  std::string place(std::string_view name) const { return url() + "/" + std::string(name); }

  const std::shared_ptr<Store> inner_;
  const std::string prefix_;
  const bool answers_, brings_;
  nb::object get_, pieces_;
};

}  // namespace

void bind_hooked_store(nb::module_& module) {
  module.def(
      "hook_store",
      [](const StoreHandle& store, std::string prefix, nb::object get, nb::object pieces) {
        return StoreHandle(std::make_shared<HookedStore>(store.get(), std::move(prefix),
                                                         std::move(get), std::move(pieces)));
      },
      nb::arg("store"), nb::arg("prefix") = "", nb::arg("get").none() = nb::none(),
      nb::arg("pieces").none() = nb::none());
}

}  // namespace deltawire::python
