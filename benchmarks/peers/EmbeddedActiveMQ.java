import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.region.policy.PolicyEntry;
import org.apache.activemq.broker.region.policy.PolicyMap;
import org.apache.activemq.broker.region.policy.VMPendingSubscriberMessageStoragePolicy;

/** An ActiveMQ broker with a STOMP connector and nothing else: no disk, no JMX, no advisory messages. */
public class EmbeddedActiveMQ {
    public static void main(String[] arguments) throws Exception {
        BrokerService broker = new BrokerService();
        broker.setPersistent(false);
        broker.setUseJmx(false);
        broker.setAdvisorySupport(false);
        broker.setUseShutdownHook(false);
        broker.setEnableStatistics(false);
        broker.setDataDirectory(arguments[1]);

        // What waits for a subscriber waits in memory: with no disk, there is nowhere else.
        PolicyEntry policy = new PolicyEntry();
        policy.setTopic(">");
        policy.setPendingSubscriberPolicy(new VMPendingSubscriberMessageStoragePolicy());
        policy.setOptimizedDispatch(true);
        PolicyMap policies = new PolicyMap();
        policies.setDefaultEntry(policy);
        broker.setDestinationPolicy(policies);

        broker.addConnector("stomp://127.0.0.1:" + arguments[0] + "?transport.tcpNoDelay=true");
        broker.start();
        broker.waitUntilStarted();
        Thread.currentThread().join();
    }
}
