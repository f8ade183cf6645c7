// The status page of a chief: one HTML file that shows a running job live, with server-sent events
// (page_feed.h). Read-only. See docs/status.md.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "chief/status/page_feed.h"
#include "common/web/http_server.h"

namespace muster::chief {

// The content of page.html.
extern const char kStatusPage[];

// Returns the Content-Security-Policy of `page`. It permits only the page's own script and style,
// by their hashes, and connections to the page's server.
std::string PolicyOf(const std::string& page);

class StatusPage {
 public:
  // Binds the port. Clients that connect before Start wait. Sets HttpOptions::max_streams. Returns
  // the errors of HttpServer::Make.
  static absl::StatusOr<std::unique_ptr<StatusPage>> Bind(web::HttpOptions options);
  // Serves "/", "/events" and "/status.json". Uses `source` and `watch` until the destructor
  // returns. Must be called at most once.
  void Start(PageFeed::Source source, const RunWatch& watch);
  std::string url() const { return server_->url(); }
  // Blocks for a moment, so that connected readers receive the last state. Returns at once without
  // readers, or before Start.
  void ShowEnd();

 private:
  explicit StatusPage(std::unique_ptr<web::HttpServer> server) : server_(std::move(server)) {}

  std::unique_ptr<PageFeed> feed_;           // Null before Start.
  std::unique_ptr<web::HttpServer> server_;  // Its handlers use feed_.
};

}  // namespace muster::chief
