// The body of muster-ps. RunPs runs a parameter server and returns the process's exit code. The
// server opens its gRPC port at its address in the cluster spec and joins the job as a member, a
// task that takes part in training. The server runs until the chief sends the job's verdict, the
// result of the job. The server continues while the chief is lost or replaced. Needs no LibTorch.
#pragma once

#include <string>

namespace muster::ps {

// main calls RunPs once, before any other thread exists. If this process ends with an error, it
// also writes the error to the file `termination_log`, such as Kubernetes' terminationMessagePath.
// Empty: no file.
int RunPs(int argc, char** argv, const std::string& termination_log);

}  // namespace muster::ps
