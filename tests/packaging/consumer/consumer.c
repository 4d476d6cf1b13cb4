/* SPDX-License-Identifier: Apache-2.0
 *
 * An outside program: sends itself a message through the installed library and checks what arrived.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thalweg/thalweg.h>

static int failed(const char* what, tw_status status) {
  fprintf(stderr, "%s: %s: %s\n", what, tw_status_name(status), tw_last_error());
  return 1;
}

int main(void) {
  static const unsigned char key[32] = "a job key of this test only.....";
  tw_context_options options = TW_CONTEXT_OPTIONS_INIT;
  tw_context* context = NULL;
  tw_worker* worker = NULL;
  tw_endpoint* self = NULL;
  unsigned char* address = NULL;
  size_t length = 0;
  const char sent[] = "through the installed library";
  char received[sizeof(sent)] = {0};
  tw_recv_info info;
  tw_request request = TW_REQUEST_NONE;
  tw_status status;

  options.job_key = key;
  options.job_key_length = sizeof(key);
  if ((status = tw_context_create(&options, &context)) != TW_OK) return failed("tw_context_create", status);
  if ((status = tw_worker_create(context, NULL, &worker)) != TW_OK) return failed("tw_worker_create", status);
  if ((status = tw_worker_address(worker, NULL, &length)) != TW_OK) return failed("tw_worker_address", status);
  if ((address = malloc(length)) == NULL) return failed("malloc", TW_ERR_NO_MEMORY);
  if ((status = tw_worker_address(worker, address, &length)) != TW_OK) return failed("tw_worker_address", status);
  if ((status = tw_connect(worker, address, length, NULL, &self)) != TW_OK) return failed("tw_connect", status);
  status = tw_send(self, sent, sizeof(sent), 7, NULL, &request);
  if (status < 0) return failed("tw_send", status);
  status = tw_recv_blocking(worker, received, sizeof(received), 7, UINT64_MAX, &info);
  if (status != TW_OK) return failed("tw_recv_blocking", status);
  if (request != TW_REQUEST_NONE && (status = tw_request_finish(request)) != TW_OK) return failed("tw_request_finish", status);
  if (info.length != sizeof(sent) || memcmp(sent, received, sizeof(sent)) != 0) return failed("compare", TW_ERR_PROTOCOL);
  free(address);
  tw_worker_destroy(worker);
  tw_context_destroy(context);
  printf("thalweg %s: %s\n", tw_version_string(), received);
  return 0;
}
