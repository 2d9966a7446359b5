// The two stores of python/deltawire/torch/broadcast.py: one passes new objects to Python, the
// other overlays the objects that Python received on another store.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "bind.h"
#include "buffer.h"
#include "lent.h"
#include "store/forwarding_store.h"
#include "store/push_source.h"
#include "stores.h"

namespace deltawire::python {
namespace {

// Calls send(name, size, offset, bytes) of a Python outbox for each piece of an object that it
// wants: parts before they are stored, manifests afterwards. Bytes are None when a manifest is
// removed. send() returns False if there are no listeners.
class SendingStore final : public ForwardingStore {
 public:
  SendingStore(std::shared_ptr<Store> inner, nb::object outbox, uint64_t piece_bytes)
      : ForwardingStore(std::move(inner)), outbox_(std::move(outbox)), piece_bytes_(piece_bytes) {}
  ~SendingStore() override { drop(&outbox_); }

  Status put(std::string_view name, const Body& body) override {
    if (wants("wants_part", name)) send(name, body);
    DW_RETURN_IF_ERROR(inner().put(name, body));
    if (wants("wants_manifest", name)) send(name, body);
    return {};
  }
  Status put_if_absent(std::string_view name, const Body& body) override {
    DW_RETURN_IF_ERROR(inner().put_if_absent(name, body));
    if (wants("wants_manifest", name)) send(name, body);
    return {};
  }
  Status remove(std::string_view name) override {
    if (wants("wants_manifest", name)) tell(name, 0, 0, [] { return nb::none(); });
    return inner().remove(name);
  }

 private:
  static nb::str text(std::string_view name) { return nb::str(name.data(), name.size()); }

  // Failures are ignored: readers fetch an object that was not sent from the store.
  bool wants(const char* question, std::string_view name) {
    const Result<bool> answer = ask_python<bool>(
        std::string(name), [&] { return nb::cast<bool>(outbox_.attr(question)(text(name))); });
    return answer.ok() && *answer;
  }

  void send(std::string_view name, const Body& body) {
    uint64_t at = 0;
    do {
      const uint64_t count = std::min(piece_bytes_, body.size() - at);
      const auto piece = [&]() -> nb::object {
        nb::object bytes = nb::steal(PyByteArray_FromStringAndSize(nullptr, Py_ssize_t(count)));
        if (!bytes.is_valid()) throw nb::python_error();
        auto* const data = reinterpret_cast<uint8_t*>(PyByteArray_AsString(bytes.ptr()));
        Status status = without_gil([&] { return body.read(at, {data, count}); });
        if (!status.ok()) throw StatusError(std::move(status));
        return bytes;
      };
      if (!tell(name, body.size(), at, piece)) return;
      at += count;
    } while (at < body.size());
  }

  template <class Piece>
  bool tell(std::string_view name, uint64_t size, uint64_t offset, const Piece& piece) {
    const Result<bool> listens = ask_python<bool>(std::string(name), [&] {
      return nb::cast<bool>(outbox_.attr("send")(text(name), size, offset, piece()));
    });
    return listens.ok() && *listens;
  }

  nb::object outbox_;
  const uint64_t piece_bytes_;
};

// Memory of a Python object.
class PythonBody final : public Body {
 public:
  explicit PythonBody(nb::object object) : object_(std::move(object)), bytes_(span_of(object_)) {}
  ~PythonBody() override { drop(&object_); }
  uint64_t size() const noexcept override { return bytes_.size(); }
  Status read(uint64_t offset, std::span<uint8_t> out) const override {
    return MemoryBody(bytes_).read(offset, out);
  }

 private:
  // A numpy array does not move while there is a reference to it.
  static std::span<const uint8_t> span_of(const nb::object& object) {
    return Buffer(object).span();
  }

  nb::object object_;
  const std::span<const uint8_t> bytes_;
};

class ReceivingStore final : public OverlayStore, public PushSource {
 public:
  using OverlayStore::OverlayStore;

  // The object is complete; its version may not be committed yet.
  void add(const std::string& name, std::shared_ptr<const Body> body) {
    offer(name, body);
    const std::lock_guard lock(mutex_);
    ahead_.push_back({++num_added_, name, std::move(body)});
    changed_.notify_all();
  }

  // The objects added so far are committed or obsolete. `live`: later versions are announced as
  // well; otherwise wait_for_news() asks the inner store.
  void announce(bool live) {
    std::vector<SentObject> done;
    const std::lock_guard lock(mutex_);
    done.swap(ahead_);
    live_ = live;
    ++news_;
    changed_.notify_all();
  }

  uint64_t wait_for_news(uint64_t seen, double seconds) override {
    std::unique_lock lock(mutex_);
    PushSource* const behind = live_ ? nullptr : push_source_of(inner());
    if (behind != nullptr && news_ <= seen) {
      const uint64_t before = news_behind_;
      lock.unlock();
      const uint64_t now = behind->wait_for_news(before, seconds);
      lock.lock();
      if (now > news_behind_) ++news_;
      news_behind_ = std::max(now, news_behind_);
      return news_;
    }
    changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                      [&, added = num_added_] { return news_ > seen || num_added_ != added; });
    return news_;
  }

  std::vector<SentObject> sent_ahead(uint64_t seen) override {
    const std::lock_guard lock(mutex_);
    const auto first = std::find_if(ahead_.begin(), ahead_.end(),
                                    [&](const SentObject& one) { return one.number > seen; });
    return {first, ahead_.end()};
  }

  // None: readers would map the files of the inner store and ignore received objects.
  std::string local_folder() const override { return {}; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool live_ = false;
  uint64_t news_ = 0, num_added_ = 0, news_behind_ = 0;
  std::vector<SentObject> ahead_;
};

class ReceivingHandle : public StoreHandle {
 public:
  explicit ReceivingHandle(const StoreHandle& behind)
      : StoreHandle(std::make_shared<ReceivingStore>(behind.get())) {}
  ReceivingStore& own() const { return static_cast<ReceivingStore&>(*get()); }
};

}  // namespace

void bind_broadcast(nb::module_& module) {
  module.def(
      "sending_store",
      [](const StoreHandle& store, nb::object outbox, uint64_t piece_bytes) {
        return StoreHandle(
            std::make_shared<SendingStore>(store.get(), std::move(outbox), piece_bytes));
      },
      nb::arg("store"), nb::arg("outbox"), nb::arg("piece_bytes"));

  nb::class_<ReceivingHandle, StoreHandle>(module, "ReceivingStore")
      .def(nb::init<const StoreHandle&>(), nb::arg("behind"))
      .def(
          "add",
          [](const ReceivingHandle& self, const std::string& name, nb::object array) {
            auto body = std::make_shared<PythonBody>(std::move(array));
            without_gil([&] { self.own().add(name, std::move(body)); });
          },
          nb::arg("name"), nb::arg("array"))
      .def(
          "drop",
          [](const ReceivingHandle& self, const std::string& name) {
            without_gil([&] { self.own().withdraw(name); });
          },
          nb::arg("name"))
      .def(
          "announce",
          [](const ReceivingHandle& self, bool live) {
            without_gil([&] { self.own().announce(live); });
          },
          nb::arg("live"));
}

}  // namespace deltawire::python
