#!/usr/bin/env node
// GoQueue over gRPC in JavaScript: publish, consume from a group, ack.
//
//     cd examples/grpc/javascript && npm install
//     node queue.js [HOST:PORT] [TOPIC] [PROTO]
//
// Offsets and times stay below 2^53, so numbers hold them exactly.

import { fileURLToPath } from 'node:url';
import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';

const [address = '127.0.0.1:9000', topic = 'grpc-js',
  proto = fileURLToPath(new URL('../../../gq_gateway/goqueue.proto', import.meta.url))] = process.argv.slice(2);
const COUNT = 1000;

const definition = loader.loadSync(proto, { keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true });
const { GoQueue } = grpc.loadPackageDefinition(definition).goqueue.v1;
const queue = new GoQueue(address, grpc.credentials.createInsecure());

// With keys: metadata.set('authorization', 'Bearer gq_...').
const metadata = new grpc.Metadata();

const call = (method, request) => new Promise((resolve, reject) => {
  const deadline = Date.now() + 10_000;
  queue[method](request, metadata, { deadline }, (error, response) => error ? reject(error) : resolve(response));
});

async function publishOne() {
  const message = { topic, key: Buffer.from('customer-7'), value: Buffer.from('hello'),
    headers: [{ name: 'content-type', value: Buffer.from('text/plain') }] };
  const stored = await call('Publish', { message, acks: 'ACKS_LEADER' });
  console.log(`published to partition ${stored.partition} at offset ${stored.offset}`);
}

// A stream: some messages a request, a result for each message, in order.
async function publishMany() {
  const stream = queue.PublishStream(metadata);
  for (let first = 0; first < COUNT; first += 50) {
    const messages = Array.from({ length: 50 }, (_, i) => ({ topic, value: Buffer.from(`number ${first + i}`) }));
    if (!stream.write({ messages })) await new Promise((resolve) => stream.once('drain', resolve));
  }
  stream.end();
  let written = 0, failed = 0;
  for await (const response of stream)
    for (const result of response.results) result.error ? failed++ : written++;
  console.log(`published ${written} more, ${failed} failed`);
}

// A subscription is a member of the group for as long as it lasts; what is not acked goes to others when it ends.
async function consume(count) {
  const subscription = queue.Subscribe({ group: 'grpc-example-js', topics: [topic], client: 'queue.js' }, metadata);
  let done = 0;
  try {
    for await (const { messages } of subscription) {
      done += messages.length;                               // work on them here; Nack to have one again later
      if (messages.length) await call('Ack', { receipts: messages.map((message) => message.receipt) });
      if (done >= count) subscription.cancel();
    }
  } catch (error) {
    if (error.code !== grpc.status.CANCELLED) throw error;
  }
  console.log(`consumed ${done}`);
}

// The stable name of an error and whether a retry helps are in the trailers.
async function showAnError() {
  try {
    await call('DeleteTopic', { name: 'no-such-topic' });
  } catch (error) {
    const [code] = error.metadata.get('goqueue-code'), [retriable] = error.metadata.get('goqueue-retriable');
    console.log(`${grpc.status[error.code]}: ${code}, retriable ${retriable}`);
  }
}

await call('CreateTopic', { name: topic, partitions: 3, if_not_exists: true });
await publishOne();
await publishMany();
await consume(COUNT + 1);
await showAnError();
queue.close();
