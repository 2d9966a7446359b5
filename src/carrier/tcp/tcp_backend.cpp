// All ranks but 0 call rank 0 and say where they listen; rank 0 tells all of them; each calls those
// below it, then says that it is ready; rank 0 says go. Every connection begins with a handshake,
// whose secret is made of the group's and of the ticket's: a rank of an older group finds no way
// in.
#include "carrier/tcp/tcp_backend.h"

#include "base/bytes.h"
#include "base/json.h"
#include "carrier/tcp/mesh.h"
#include "carrier/tcp/socket_carrier.h"

namespace deltawire {
namespace {

constexpr size_t kTokenDigits = 32;
constexpr unsigned kMostRanks = 4096;

Secret group_secret(const std::string& token, const Secret& secret) {
  return Secret(token + "\n" + secret.reveal());
}

Status check_size(unsigned size) {
  if (size >= 1 && size <= kMostRanks) return {};
  return invalid_argument("tcp: a group has 1 to " + std::to_string(kMostRanks) + " ranks, not " +
                          std::to_string(size));
}

class TcpGathering final : public Gathering {
 public:
  TcpGathering(MeshGate gate, std::string token, unsigned size)
      : gate_(std::move(gate)), token_(std::move(token)), size_(size) {}

  std::string ticket() const override {
    return json_text(
        nlohmann::json{{"address", gate_.address}, {"token", token_}, {"size", size_}});
  }

  Result<std::unique_ptr<Carrier>> finish(double timeout_seconds) override {
    DW_ASSIGN_OR_RETURN(auto sockets,
                        gather_mesh(gate_, size_, Deadline(timeout_seconds), &missing_));
    return make_socket_carrier("tcp", 0, std::move(sockets));
  }
  std::vector<unsigned> missing() const override { return missing_; }

 private:
  MeshGate gate_;
  std::vector<unsigned> missing_;
  const std::string token_;
  const unsigned size_;
};

class TcpBackend final : public Backend {
 public:
  std::string name() const override { return "tcp"; }

  Result<std::unique_ptr<Gathering>> open(const GroupOptions& options,
                                          double timeout_seconds) override {
    DW_RETURN_IF_ERROR(check_size(options.size));
    const std::string token = random_hex(kTokenDigits);
    DW_ASSIGN_OR_RETURN(MeshGate gate, open_gate(options.host, 0, timeout_seconds,
                                                 group_secret(token, options.secret)));
    return std::unique_ptr<Gathering>(
        std::make_unique<TcpGathering>(std::move(gate), token, options.size));
  }

  Result<std::unique_ptr<Carrier>> enter(const std::string& ticket, unsigned rank,
                                         const GroupOptions& options,
                                         double timeout_seconds) override {
    DW_RETURN_IF_ERROR(check_size(options.size));
    if (rank == 0 || rank >= options.size) {
      return invalid_argument("tcp: rank " + std::to_string(rank) + " cannot enter a group of " +
                              std::to_string(options.size));
    }
    const nlohmann::json json = parse_json(ticket);
    const bool good = json.is_object() && json.contains("address") && json.contains("token") &&
                      json.contains("size") && json["address"].is_string() &&
                      json["token"].is_string() && json["size"].is_number_unsigned();
    if (!good) return invalid_argument("tcp: not a ticket: " + ticket.substr(0, 200));
    if (json["size"].get<uint64_t>() != options.size) {
      return invalid_argument("tcp: the ticket is for a group of " +
                              std::to_string(json["size"].get<uint64_t>()) + ", not of " +
                              std::to_string(options.size));
    }
    DW_ASSIGN_OR_RETURN(auto sockets,
                        enter_mesh(json["address"].get<std::string>(), rank, options.size,
                                   group_secret(json["token"].get<std::string>(), options.secret),
                                   Deadline(timeout_seconds)));
    return make_socket_carrier("tcp", rank, std::move(sockets));
  }
};

}  // namespace

std::shared_ptr<Backend> make_tcp_backend() { return std::make_shared<TcpBackend>(); }

}  // namespace deltawire
