"""One party: it holds shares, spends material, talks to its peer and answers callers.

node         a process: reads its configuration, makes its links, serves
engine       a party's link to its peer, its material, and programs run with both
worker       what a party does, command by command, over one pair of links
side_worker  a further worker of a party, as its node drives it; side_link, what the node gives it; side_material, what
             it spends; side_workers, all of them; launcher, ray_launcher (ray_host, ray_folder) and relay, how they are
             started and reached; dealers, the dealer's
patience     who waits for whom, and how long
group        the workers of one party that train together; gathering, where the first waits for the others
opened       models and functions that are open: how a batch runs, and what leaves
training     a run of training at a party; dataset, checkpoint
rows         rows of shares, taken by number from wherever they lie: mapped files, spools of a local cluster
arrow        a share of a data set as an Arrow file; dataset_folder, where such files are kept
allotment    a pool's executions, allotted by number
local_front  the one caller of `hdcos.local()`: shares in memory, commands for the worker
scheduler    what is to be done next: party 0 decides, for both
functions    single functions that clients have open, and what these may take
batcher      requests of clients, matched between the two parties and merged into batches
links        the links between the parties; session, one life of them
service      sessions one after another, for as long as the process lives
store        models, jobs and records on disk; uploads (part, one on its way), data sets; kept_data, whose they are and
             until when; kept_reveals, what was asked to be revealed; database, its tables and room
budget       what an operator gives; config, where that is said; failures, what is not tried again
http         the HTTPS interface, which needs the extra hdcos[server]
"""
