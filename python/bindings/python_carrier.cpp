// A carrier written in Python, as the library sees it, and what makes groups of such.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "carriers.h"
#include "lent.h"

namespace deltawire::python {
namespace {

template <class Span>
nb::list lend(std::span<const Span> spans, int access,
              std::vector<std::unique_ptr<LentView>>* views) {
  nb::list list;
  for (const Span& one : spans) {
    views->push_back(std::make_unique<LentView>(one.bytes.data(), one.bytes.size(), access));
    list.append(nb::make_tuple(one.rank, views->back()->get()));
  }
  return list;
}

class PythonCarrier final : public Carrier {
 public:
  explicit PythonCarrier(nb::object object)
      : object_(std::move(object)),
        name_(nb::cast<std::string>(object_.attr("name"))),
        rank_(nb::cast<unsigned>(object_.attr("rank"))),
        size_(nb::cast<unsigned>(object_.attr("size"))) {}
  ~PythonCarrier() override { drop(&object_); }

  std::string name() const override { return name_; }
  unsigned rank() const noexcept override { return rank_; }
  unsigned size() const noexcept override { return size_; }

  Status exchange(std::span<const ToRank> to, std::span<const FromRank> from,
                  double timeout_seconds) override {
    return ask_python<bool>(name_,
                            [&] {
                              std::vector<std::unique_ptr<LentView>> views;
                              const nb::list out = lend(to, PyBUF_READ, &views);
                              const nb::list in = lend(from, PyBUF_WRITE, &views);
                              object_.attr("exchange")(out, in, timeout_seconds);
                              return true;
                            })
        .status();
  }

  Status broadcast(unsigned root, std::span<uint8_t> bytes, double timeout_seconds) override {
    return ask_python<bool>(name_,
                            [&] {
                              const LentView view(bytes.data(), bytes.size(), PyBUF_WRITE);
                              object_.attr("broadcast")(root, view.get(), timeout_seconds);
                              return true;
                            })
        .status();
  }

  std::vector<unsigned> lost() const override {
    auto ranks = ask_python<std::vector<unsigned>>(
        name_, [&] { return nb::cast<std::vector<unsigned>>(nb::list(object_.attr("lost")())); });
    return ranks.ok() ? *ranks : std::vector<unsigned>();
  }

  void abort() noexcept override {
    static_cast<void>(ask_python<bool>(name_, [&] {
                        object_.attr("abort")();
                        return true;
                      }).ok());
  }

 private:
  nb::object object_;
  const std::string name_;
  const unsigned rank_, size_;
};

class PythonGathering final : public Gathering {
 public:
  PythonGathering(std::string place, nb::object object)
      : place_(std::move(place)),
        object_(std::move(object)),
        ticket_(nb::cast<std::string>(object_.attr("ticket"))) {}
  ~PythonGathering() override { drop(&object_); }

  std::string ticket() const override { return ticket_; }
  Result<std::unique_ptr<Carrier>> finish(double timeout_seconds) override {
    return ask_python<std::unique_ptr<Carrier>>(
        place_, [&] { return adapt_carrier(object_.attr("finish")(timeout_seconds)); });
  }

 private:
  const std::string place_;
  nb::object object_;
  const std::string ticket_;
};

class PythonBackend final : public Backend {
 public:
  explicit PythonBackend(nb::object object)
      : object_(std::move(object)), name_(nb::cast<std::string>(object_.attr("name"))) {}
  ~PythonBackend() override { drop(&object_); }

  std::string name() const override { return name_; }

  Result<std::unique_ptr<Gathering>> open(const GroupOptions& options,
                                          double timeout_seconds) override {
    return ask_python<std::unique_ptr<Gathering>>(name_, [&]() -> std::unique_ptr<Gathering> {
      return std::make_unique<PythonGathering>(
          name_, object_.attr("open")(options.size, options.host, timeout_seconds));
    });
  }

  Result<std::unique_ptr<Carrier>> enter(const std::string& ticket, unsigned rank,
                                         const GroupOptions& options,
                                         double timeout_seconds) override {
    return ask_python<std::unique_ptr<Carrier>>(name_, [&] {
      return adapt_carrier(object_.attr("enter")(ticket, rank, options.size, timeout_seconds));
    });
  }

 private:
  nb::object object_;
  const std::string name_;
};

}  // namespace

std::unique_ptr<Carrier> adapt_carrier(nb::object object) {
  return std::make_unique<PythonCarrier>(std::move(object));
}

bool is_in_python(const Carrier& carrier) {
  return dynamic_cast<const PythonCarrier*>(&carrier) != nullptr;
}

std::shared_ptr<Backend> adapt_backend(nb::object object) {
  return std::make_shared<PythonBackend>(std::move(object));
}

}  // namespace deltawire::python
