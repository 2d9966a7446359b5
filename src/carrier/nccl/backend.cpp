#include "carrier/nccl/backend.h"

#include "base/hex.h"
#include "deltawire/carrier_nccl.h"

namespace deltawire {
namespace {

Result<std::string> id_of_ticket(const std::string& ticket) {
  if (ticket.size() % 2 != 0 || !is_hex(ticket)) {
    return invalid_argument("nccl: a ticket is hexadecimal digits, got \"" + ticket + "\"");
  }
  std::string id;
  for (size_t i = 0; i < ticket.size(); i += 2) {
    id.push_back(char(std::stoi(ticket.substr(i, 2), nullptr, 16)));
  }
  return id;
}

class NcclGathering final : public Gathering {
 public:
  NcclGathering(std::string id, unsigned size) : id_(std::move(id)), size_(size) {}

  std::string ticket() const override { return to_hex(id_); }
  Result<std::unique_ptr<Carrier>> finish(double timeout_seconds) override {
    return make_nccl_carrier({.id = id_, .size = size_, .timeout_seconds = timeout_seconds});
  }

 private:
  const std::string id_;
  const unsigned size_;
};

class NcclBackend final : public Backend {
 public:
  std::string name() const override { return "nccl"; }

  Result<std::unique_ptr<Gathering>> open(const GroupOptions& options, double) override {
    DW_ASSIGN_OR_RETURN(std::string id, nccl_unique_id());
    return std::unique_ptr<Gathering>(std::make_unique<NcclGathering>(std::move(id), options.size));
  }

  Result<std::unique_ptr<Carrier>> enter(const std::string& ticket, unsigned rank,
                                         const GroupOptions& options,
                                         double timeout_seconds) override {
    DW_ASSIGN_OR_RETURN(std::string id, id_of_ticket(ticket));
    return make_nccl_carrier({.id = std::move(id),
                              .rank = rank,
                              .size = options.size,
                              .timeout_seconds = timeout_seconds});
  }
};

}  // namespace

std::shared_ptr<Backend> make_nccl_backend() { return std::make_shared<NcclBackend>(); }

}  // namespace deltawire
