// How a group of ranks is joined: rank 0 opens it and gets a ticket, a short text; the others enter
// with the ticket, which reaches them by whatever way there is (a hub, a file, an argument).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/secret.h"
#include "carrier/carrier.h"

namespace deltawire {

struct GroupOptions {
  unsigned size = 0;               // ranks of the group, rank 0 among them
  std::string host = "127.0.0.1";  // an address of rank 0, by which the others reach it
  Secret secret = {};              // what all ranks know and nobody sends
};

// What rank 0 holds until the others are there. Destroyed before: they get Unavailable.
class Gathering {
 public:
  virtual ~Gathering() = default;
  virtual std::string ticket() const = 0;  // one line; not secret where GroupOptions has a secret
  // Once. Unavailable names the ranks that did not come.
  virtual Result<std::unique_ptr<Carrier>> finish(double timeout_seconds) = 0;
  // After it has failed: ranks that are known to be why. Empty: it is not known.
  virtual std::vector<unsigned> missing() const { return {}; }
};

// Thread safety: all calls, from any thread.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  virtual Result<std::unique_ptr<Gathering>> open(const GroupOptions& options,
                                                  double timeout_seconds) = 0;
  // Of the options size and secret count. Until all are there.
  virtual Result<std::unique_ptr<Carrier>> enter(const std::string& ticket, unsigned rank,
                                                 const GroupOptions& options,
                                                 double timeout_seconds) = 0;
};

// One table for all: "tcp", and those that were added. NotFound lists the names that there are.
Result<std::shared_ptr<Backend>> find_backend(std::string_view name);
std::vector<std::string> backend_names();
// Takes the place of one with the same name.
void add_backend(std::shared_ptr<Backend> backend);

}  // namespace deltawire
